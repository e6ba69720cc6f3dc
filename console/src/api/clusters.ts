// Short names of the cluster API's types, and the URLs of a cluster.
import { at } from "./client";
import type { Schemas } from "./types";

export type Cluster = Schemas["Cluster"];
export type ClusterStatus = Schemas["ClusterStatus"];
export type ClusterOperation = Schemas["ClusterOperation"];
export type OperationState = Schemas["ClusterOperationState"];
export type OperationKind = Schemas["ClusterOperationKind"];
export type OperationRequest = Schemas["ClusterOperationRequest"];
export type ClusterPlan = Schemas["ClusterPlan"];
export type ChangeAnswer = Schemas["ClusterChangeAnswer"];
export type ClusterNode = Schemas["ClusterNode"];
export type ClusterConnection = Schemas["ClusterConnection"];
export type Counts = Schemas["ProgressCounts"];

export const clustersUrl = (project: string, terminated: boolean) =>
    at(
        "/api/v1/projects/{project}/clusters",
        { project },
        { limit: 1000, ...(terminated ? { terminated } : {}) },
    );
export const clusterUrl = (cluster: string) => at("/api/v1/clusters/{cluster}", { cluster });
export const nodesUrl = (cluster: string) =>
    at("/api/v1/clusters/{cluster}/nodes", { cluster }, { limit: 1000 });
export const operationsUrl = (cluster: string) =>
    at("/api/v1/clusters/{cluster}/operations", { cluster }, { limit: 100 });
export const operationUrl = (cluster: string, number: number) =>
    at("/api/v1/clusters/{cluster}/operations/{number}", { cluster, number });
export const connectionUrl = (cluster: string) =>
    at("/api/v1/clusters/{cluster}/connection", { cluster });
