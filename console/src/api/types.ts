// Short names for the generated types of the API.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Status = Schemas["Status"];
export type ResourceSummary = Schemas["ResourceSummary"];
export type ResourceDetails = Schemas["ResourceDetails"];
export type Environment = Schemas["Environment"];
export type Project = Schemas["Project"];
export type VersionSummary = Schemas["VersionSummary"];
export type Operation = Schemas["Operation"];
export type Agent = Schemas["Agent"];
export type Compile = Schemas["Compile"];
export type Setting = Schemas["Setting"];
export type Me = Schemas["Me"];
export type RoleName = Schemas["RoleName"];
export type EventKind = Schemas["ObjectKind"];
export type AttributeChange = Schemas["AttributeChange"];

export type Page<T> = { items: T[]; next?: string | null };

type Methods = "get" | "put" | "post" | "delete" | "patch";
type Success<R> = R extends { responses: infer All }
    ? All extends { 200: { content: { "application/json": infer Body } } }
        ? Body
        : All extends { 201: { content: { "application/json": infer Body } } }
          ? Body
          : All extends { 202: { content: { "application/json": infer Body } } }
            ? Body
            : undefined
    : never;

/** Paths that have a method. */
export type PathOf<M extends Methods> = {
    [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

type OperationOf<P extends keyof paths, M extends Methods> =
    paths[P] extends Record<M, infer O> ? O : never;
type PathParameters<O> = O extends { parameters: { path: infer V } }
    ? V extends Record<string, unknown>
        ? { [K in keyof V]: string | number }
        : Record<never, never>
    : Record<never, never>;
type QueryParameters<O> = O extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
type BodyOf<O> = O extends { requestBody: { content: { "application/json": infer B } } }
    ? B
    : O extends { requestBody?: { content: { "application/json": infer B } } }
      ? B | undefined
      : undefined;

export type Response<P extends keyof paths, M extends Methods> = Success<OperationOf<P, M>>;
export type PathValues<P extends keyof paths, M extends Methods> = PathParameters<
    OperationOf<P, M>
>;
export type QueryValues<P extends keyof paths, M extends Methods> = QueryParameters<
    OperationOf<P, M>
>;
export type Body<P extends keyof paths, M extends Methods> = BodyOf<OperationOf<P, M>>;
export type { Methods };
