// Build of the console: hashed names below `assets/`, no inline scripts or styles, as the content
// security policy demands.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

const server = process.env["ORRERY_SERVER"] ?? "http://127.0.0.1:8888";
const proxy = { "/api": { target: server, changeOrigin: false }, "/health": server };

export default defineConfig({
    plugins: [svelte()],
    build: {
        // The directory has a file of its own, which Cargo needs: scripts/compress.js removes the rest.
        emptyOutDir: false,
        target: "es2023",
        assetsInlineLimit: 0,
        modulePreload: { polyfill: false },
        cssCodeSplit: true,
    },
    server: { proxy },
    preview: { proxy },
    test: {
        environment: "happy-dom",
        include: ["tests/**/*.test.ts"],
        // The browser's build of Svelte, which mounts components.
    },
    resolve: process.env["VITEST"] ? { conditions: ["browser"] } : {},
});
