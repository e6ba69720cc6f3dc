// Pages by path.
import type { Route } from "./lib/router.svelte";

export const ROUTES: Route[] = [
    { pattern: "/", name: "Home", load: () => import("./pages/Home.svelte") },
    { pattern: "/gallery", name: "Gallery", load: () => import("./pages/Gallery.svelte") },
    { pattern: "/e/:env", name: "Overview", load: () => import("./pages/Overview.svelte") },
    {
        pattern: "/e/:env/resources",
        name: "Resources",
        load: () => import("./pages/Resources.svelte"),
    },
    {
        pattern: "/e/:env/resources/:id",
        name: "Resource",
        load: () => import("./pages/Resource.svelte"),
    },
    { pattern: "/e/:env/runs", name: "Runs", load: () => import("./pages/Runs.svelte") },
    { pattern: "/e/:env/graph", name: "Graph", load: () => import("./pages/Graph.svelte") },
    {
        pattern: "/e/:env/versions",
        name: "Versions",
        load: () => import("./pages/Versions.svelte"),
    },
    {
        pattern: "/e/:env/versions/:version",
        name: "Version",
        load: () => import("./pages/Version.svelte"),
    },
    {
        pattern: "/e/:env/versions/:version/dry-runs/:id",
        name: "Dry run",
        load: () => import("./pages/DryRun.svelte"),
    },
    { pattern: "/e/:env/agents", name: "Agents", load: () => import("./pages/Agents.svelte") },
    {
        pattern: "/e/:env/operations",
        name: "Operations",
        load: () => import("./pages/Operations.svelte"),
    },
    {
        pattern: "/e/:env/operations/:id",
        name: "Operation",
        load: () => import("./pages/Operation.svelte"),
    },
    {
        pattern: "/e/:env/compiles",
        name: "Compiles",
        load: () => import("./pages/Compiles.svelte"),
    },
    {
        pattern: "/e/:env/compiles/:id",
        name: "Compile",
        load: () => import("./pages/Compile.svelte"),
    },
    { pattern: "/e/:env/metrics", name: "Metrics", load: () => import("./pages/Metrics.svelte") },
    {
        pattern: "/e/:env/discovered",
        name: "Discovered",
        load: () => import("./pages/Discovered.svelte"),
    },
    {
        pattern: "/e/:env/notifications",
        name: "Notifications",
        load: () => import("./pages/Notifications.svelte"),
    },
    {
        pattern: "/e/:env/settings",
        name: "Settings",
        load: () => import("./pages/Settings.svelte"),
    },
    { pattern: "/e/:env/data/:kind", name: "Data", load: () => import("./pages/Data.svelte") },
    { pattern: "/catalog", name: "Catalogue", load: () => import("./pages/Catalog.svelte") },
    { pattern: "/catalog/:kind", name: "Catalogue", load: () => import("./pages/Catalog.svelte") },
    {
        pattern: "/catalog/:kind/:name",
        name: "Document",
        load: () => import("./pages/CatalogDocument.svelte"),
    },
    {
        pattern: "/clusters/new",
        name: "New cluster",
        load: () => import("./pages/ClusterNew.svelte"),
    },
    { pattern: "/clusters", name: "Clusters", load: () => import("./pages/Clusters.svelte") },
    {
        pattern: "/clusters/:cluster",
        name: "Cluster",
        load: () => import("./pages/Cluster.svelte"),
    },
    { pattern: "/admin/:kind", name: "Administration", load: () => import("./pages/Admin.svelte") },
];
