// Sets the theme before the first paint: the stored choice, else that of the system.
(() => {
    let choice = null;
    try {
        choice = localStorage.getItem("orrery.theme");
    } catch {
        // Storage is blocked: the system's theme applies.
    }
    const dark = choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
