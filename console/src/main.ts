// Entry point of the console.
import { mount } from "svelte";
import App from "./App.svelte";
import "./styles/tokens.css";
import "./styles/base.css";

const target = document.getElementById("app");
if (target) mount(App, { target });

// A file of an earlier build is gone after an upgrade of the server: one reload gets the new build.
window.addEventListener("vite:preloadError", () => {
    const key = "orrery.reloaded";
    if (sessionStorage.getItem(key)) return;
    sessionStorage.setItem(key, "1");
    window.location.reload();
});
