// Documents of the catalogue: their kinds, their paths, and what templates say.
import { at, type Url } from "../api/client";
import type { Page, Schemas } from "../api/types";

export type ClusterDocument = Schemas["ClusterDocument"];
export type Kind = Schemas["ClusterDocumentKind"];

/** Kinds in the order of the catalogue, with the command that lists them. */
export const KINDS: { kind: Kind; name: string; one: string; command: string[] }[] = [
    { kind: "template", name: "Templates", one: "template", command: ["template", "list"] },
    {
        kind: "partial",
        name: "Partial templates",
        one: "partial template",
        command: ["template", "list", "--partial"],
    },
    { kind: "service", name: "Services", one: "service", command: ["service", "list"] },
    { kind: "hardware", name: "Hardware", one: "hardware type", command: ["hardware", "list"] },
    { kind: "image", name: "Images", one: "image type", command: ["image", "list"] },
    { kind: "provider", name: "Providers", one: "provider", command: ["provider", "list"] },
    { kind: "tenant", name: "Tenants", one: "tenant", command: ["tenant", "list"] },
];

/** What a new document of a kind begins with. */
export const BEGINNINGS: Record<Kind, string> = {
    template:
        "name: \ndescription: \ndefaults:\n  provider: \n  imagetype: \n  services: []\nconstraints:\n  size: {min: 1, max: 10}\n",
    partial: "name: \ndefaults: {}\n",
    service:
        "name: \ndependencies:\n  runtime: {requires: []}\nprovisioner:\n  actions:\n    start: {type: shell, fields: {script: }}\n",
    hardware: "name: \nprovidermap:\n  PROVIDER: {flavor: , cost: 1}\n",
    image: "name: \nprovidermap:\n  PROVIDER: {image: }\n",
    provider: "name: \nprovidertype: \n",
    tenant: "name: \n",
};

/** Documents of the installation, or those that are visible to a project. */
export function documentsUrl(project: string | null, kind: Kind): Url<Page<ClusterDocument>> {
    const filter = { kind, limit: 1000 };
    return project
        ? at("/api/v1/projects/{project}/cluster-documents", { project }, filter)
        : at("/api/v1/cluster-documents", {}, filter);
}

export function documentUrl(
    project: string | null,
    kind: Kind,
    name: string,
    revision?: number,
): Url<ClusterDocument> {
    const query = revision === undefined ? {} : { revision };
    return project
        ? at(
              "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
              { project, kind, name },
              query,
          )
        : at("/api/v1/cluster-documents/{kind}/{name}", { kind, name }, query);
}

export function historyUrl(
    project: string | null,
    kind: Kind,
    name: string,
): Url<Page<ClusterDocument>> {
    return project
        ? at(
              "/api/v1/projects/{project}/cluster-documents/{kind}/{name}/history",
              { project, kind, name },
              { limit: 50 },
          )
        : at("/api/v1/cluster-documents/{kind}/{name}/history", { kind, name }, { limit: 50 });
}

/** The path of an action on all documents of a place: `apply` or `solve`. */
export function actionUrl(project: string | null, action: "apply" | "solve"): string {
    return project
        ? `/api/v1/projects/${encodeURIComponent(project)}/cluster-documents/${action}`
        : `/api/v1/cluster-documents/${action}`;
}

/** A page of the console below the catalogue. */
export function catalogPath(kind: Kind, name: string | null, project: string | null): string {
    const tail = name === null ? "" : `/${encodeURIComponent(name)}`;
    return `/catalog/${kind}${tail}${project ? `?project=${project}` : ""}`;
}

type Content = Record<string, unknown>;
const object = (value: unknown): Content =>
    value && typeof value === "object" && !Array.isArray(value) ? (value as Content) : {};
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const names = (value: unknown): string[] =>
    (Array.isArray(value) ? value : [])
        .map((one) => text(one) || text(object(one)["name"]))
        .filter(Boolean);

/** What a card shows of a document. */
export type Summary = {
    title: string;
    purpose: string;
    services: string[];
    /** Services that a user may add. */
    offered: string[];
    min: number | null;
    max: number | null;
    lease: string;
};

export function summarize(document: ClusterDocument): Summary {
    const content = object(document.content);
    const size = object(object(content["constraints"])["size"]);
    const lease = object(object(content["administration"])["leaseduration"]);
    const initial = lease["initial"];
    const services = names(object(content["defaults"])["services"]);
    return {
        title: text(content["label"]) || document.name,
        purpose: text(content["description"]),
        services,
        offered: [
            ...new Set([...services, ...names(object(content["compatibility"])["services"])]),
        ],
        min: number(size["min"]),
        max: number(size["max"]),
        lease: initial === undefined ? "" : String(initial),
    };
}
