// The current time, for relative times: one timer for the page.
class Clock {
    value = $state(Date.now());
    constructor() {
        if (typeof document === "undefined") return;
        setInterval(() => {
            if (document.visibilityState !== "hidden") this.value = Date.now();
        }, 1000);
        document.addEventListener("visibilitychange", () => (this.value = Date.now()));
    }
}
export const now = new Clock();
