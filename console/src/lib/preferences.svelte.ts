// Choices of this browser: theme, density, folded rail, single-letter keys. Nothing secret.
function load(name: string): string | null {
    try {
        return localStorage.getItem(`orrery.${name}`);
    } catch {
        return null;
    }
}
function store(name: string, value: string) {
    try {
        localStorage.setItem(`orrery.${name}`, value);
    } catch {
        // Storage is blocked: the choice lasts as long as the page.
    }
}

class Preferences {
    theme = $state<"light" | "dark">("light");
    density = $state<"compact" | "comfortable">("compact");
    isFolded = $state(load("folded") === "yes");
    hasLetterKeys = $state(load("keys") !== "off");

    constructor() {
        if (typeof document === "undefined") return;
        this.theme = document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
        this.setDensity(load("density") === "comfortable" ? "comfortable" : "compact");
    }

    setTheme(theme: "light" | "dark") {
        this.theme = theme;
        document.documentElement.dataset["theme"] = theme;
        store("theme", theme);
    }

    setDensity(density: "compact" | "comfortable") {
        this.density = density;
        document.documentElement.dataset["density"] = density;
        store("density", density);
    }

    setFolded(folded: boolean) {
        this.isFolded = folded;
        store("folded", folded ? "yes" : "no");
    }

    setLetterKeys(on: boolean) {
        this.hasLetterKeys = on;
        store("keys", on ? "on" : "off");
    }
}

export const preferences = new Preferences();
