// Pages in the rail and the palette, with the letter after `g` that goes there.
import Activity from "@lucide/svelte/icons/activity";
import Blocks from "@lucide/svelte/icons/blocks";
import BookOpen from "@lucide/svelte/icons/book-open";
import Bell from "@lucide/svelte/icons/bell";
import Boxes from "@lucide/svelte/icons/boxes";
import ChartLine from "@lucide/svelte/icons/chart-line";
import Database from "@lucide/svelte/icons/database";
import Gauge from "@lucide/svelte/icons/gauge";
import Hammer from "@lucide/svelte/icons/hammer";
import Layers from "@lucide/svelte/icons/layers";
import Network from "@lucide/svelte/icons/network";
import Server from "@lucide/svelte/icons/server";
import Settings from "@lucide/svelte/icons/settings";
import Telescope from "@lucide/svelte/icons/telescope";
import type { Component } from "svelte";
import { environmentPath } from "./router.svelte";

export type NavItem = { name: string; path: string; icon: Component; key: string };

export function environmentPages(env: string): NavItem[] {
    const to = (...rest: string[]) => environmentPath(env, ...rest);
    return [
        { name: "Overview", path: to(), icon: Gauge, key: "o" },
        { name: "Resources", path: to("resources"), icon: Boxes, key: "r" },
        { name: "Graph", path: to("graph"), icon: Network, key: "g" },
        { name: "Versions", path: to("versions"), icon: Layers, key: "v" },
        { name: "Operations", path: to("operations"), icon: Activity, key: "p" },
        { name: "Compiles", path: to("compiles"), icon: Hammer, key: "c" },
        { name: "Agents", path: to("agents"), icon: Server, key: "a" },
        { name: "Data", path: `${to("data")}/parameters`, icon: Database, key: "d" },
        { name: "Discovered", path: to("discovered"), icon: Telescope, key: "i" },
        { name: "Metrics", path: to("metrics"), icon: ChartLine, key: "m" },
        { name: "Notifications", path: to("notifications"), icon: Bell, key: "n" },
        { name: "Settings", path: to("settings"), icon: Settings, key: "s" },
    ];
}

/** Pages about clusters. */
export const CLUSTER_PAGES: NavItem[] = [
    { name: "Catalogue", path: "/catalog/template", icon: BookOpen, key: "t" },
    { name: "Clusters", path: "/clusters", icon: Blocks, key: "w" },
];

/** Pages of the installation, with the role that their data needs. */
export const ADMIN_PAGES = [
    { kind: "tokens", name: "Tokens", needsAdmin: false },
    { kind: "users", name: "Users", needsAdmin: true },
    { kind: "audit", name: "Audit log", needsAdmin: true },
    { kind: "server", name: "Server", needsAdmin: false },
];
