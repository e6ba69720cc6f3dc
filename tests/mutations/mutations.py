"""List of mutations: the removed protection, its file, and the tests that must fail."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One removed protection."""

    name: str
    #: The broken guarantee.
    promise: str
    file: str
    old: str
    new: str
    package: str
    #: `--lib`, or the name of a test target.
    target: str
    tests: tuple[str, ...]
    #: Other mutations that also make its tests fail.
    meets: tuple[str, ...] = ()


def at(package, target, file):
    """Returns a constructor of mutations of one file with tests in one target."""
    return lambda name, promise, old, new, *tests, meets=(): Mutation(
        name, promise, file, old, new, package, target, tests, meets
    )


SERVER = "crates/orrery-server/src"
server_it = lambda file: at("orrery-server", "it", f"{SERVER}/{file}")  # noqa: E731
roles_it = lambda file: at("orrery-server", "it", f"crates/orrery-roles/src/{file}")  # noqa: E731
roles_lib = lambda file: at("orrery-roles", "--lib", f"crates/orrery-roles/src/{file}")  # noqa: E731
server_lib = lambda file: at("orrery-server", "--lib", f"{SERVER}/{file}")  # noqa: E731
# Tests of servers with both APIs.
both_it = lambda file: at("orrery-inmanta-api", "it", f"crates/{file}")  # noqa: E731
compiles_lib = lambda file: at("orrery-compile-service", "--lib", f"crates/orrery-compile-service/src/{file}")  # noqa: E731
program = lambda file: at("orrery", "it", file)  # noqa: E731

listener = roles_it("listener.rs")
slots = roles_lib("listener/slots.rs")
throttle = server_lib("auth/login_throttle.rs")
throttle_it = both_it("orrery-server/src/auth/login_throttle.rs")

MUTATIONS = [
    # Limits before authentication.
    listener(
        "idle-http1", "a connection without a request ends, and there is no HTTP/2 in the clear",
        "const FIRST: Duration = Duration::from_secs(10);", "const FIRST: Duration = Duration::from_secs(10_000);",
        "a_connection_without_a_request_ends",
    ),
    listener(
        "idle-http2", "an HTTP/2 connection without a request ends",
        "ended = watcher.watch(connection.into_owned()) => ended,\n                        () = slot.overdue(FIRST, NEXT) => return,",
        "ended = watcher.watch(connection.into_owned()) => ended,",
        "an_http2_connection_without_a_request_ends",
    ),
    slots(
        "slots-of-networks", "a network over its limit evicts its own connections",
        "if own >= self.limits.network && !self.is_proxy(peer) {", "if own >= usize::MAX && !self.is_proxy(peer) {",
        "a_network_over_its_limit_evicts_its_own_connections",
    ),
    slots(
        "reserved-slots", "slots are reserved for authenticated clients",
        "        if own.anonymous.remove(&self.number).is_some() {\n            own.authenticated += 1;",
        "        if false && own.anonymous.remove(&self.number).is_some() {\n            own.authenticated += 1;",
        "slots_are_reserved_for_authenticated_clients",
    ),
    both_it("orrery-roles/src/body.rs")(
        "anonymous-size", "bodies of anonymous requests are small", "Bounds { size: 64 * 1024, within: Duration::from_secs(10) }",
        "Bounds { size: 64 << 20, within: Duration::from_secs(10) }", "anonymous_bodies_are_small_compressed_or_not",
    ),
    roles_it("body.rs")(
        "anonymous-time", "a slow anonymous body ends at its deadline",
        "Bounds { size: 64 * 1024, within: Duration::from_secs(10) }",
        "Bounds { size: 64 * 1024, within: Duration::from_secs(10_000) }", "a_slow_anonymous_body_ends_at_its_deadline",
    ),
    roles_it("body.rs")(
        "anonymous-budget", "anonymous bodies share a budget", "held.total + bytes > self.total_max || own + bytes > self.each_max",
        "held.total + bytes > usize::MAX / 2 || own + bytes > usize::MAX / 2", "anonymous_bodies_share_a_budget",
    ),
    both_it("orrery-server/src/middleware/admission.rs")(
        "audit-of-anonymous", "anonymous requests cannot fill the audit log",
        "        audit = audit.for_public_route();\n    }\n    parts.extensions.insert(ClientAddress", "    }\n    parts.extensions.insert(ClientAddress",
        "anonymous_requests_do_not_fill_the_audit_log", meets=("throttle-network",),
    ),
    server_lib("auth/audit.rs")(
        "audit-rate", "refusals are rate-limited, and the rest is counted",
        "const ANONYMOUS_RATE: RateLimit = RateLimit { burst: 20, pause: Duration::from_secs(10) };",
        "const ANONYMOUS_RATE: RateLimit = RateLimit { burst: 200_000, pause: Duration::from_secs(10) };",
        "refusals_are_rate_limited_and_the_rest_is_counted",
    ),
    both_it("orrery-inmanta-api/src/files.rs")(
        "compared-size", "comparing files has a limit", "const COMPARED_MAX: usize = 1 << 20;", "const COMPARED_MAX: usize = 1 << 30;",
        "comparing_files_is_bounded",
    ),
    throttle(
        "throttle-network-lib", "many failures of a network lock no account out", "filter(|_| !is_familiar && !is_first)", "filter(|_| true)",
        "many_failures_of_a_network_wait_and_lock_no_account_out",
    ),
    throttle_it(
        "throttle-network", "failed logins of others lock no account out", "filter(|_| !is_familiar && !is_first)", "filter(|_| true)",
        "failed_logins_of_others_lock_no_account_out",
    ),
    server_lib("middleware/mod.rs")(
        "timeout-as-undone", "a change that times out is reported as of unknown outcome",
        "if is_safe { ServerError::Unavailable(text) } else { ServerError::OutcomeUnknown(text) }", "{ let _ = is_safe; ServerError::Unavailable(text) }",
        "a_timed_out_change_has_an_unknown_outcome",
    ),
    both_it("orrery-server/src/auth/authenticate.rs")(
        "get-that-changes", "no page of another origin changes something by a GET with a cookie",
        "if cookie && !only_reads && needs_proof_of_origin(&parts.headers) {",
        "if cookie && !parts.method.is_safe() && needs_proof_of_origin(&parts.headers) {",
        "a_compile_is_requested_by_an_audited_get",
    ),
    both_it("orrery-inmanta-api/src/versions.rs")(
        "large-version", "a large version is streamed",
        "    let body = axum::body::Body::from_stream(head.chain(parts).chain(tail));",
        "    let body: Vec<Result<Bytes, ServerError>> = head.chain(parts).chain(tail).collect().await;\n"
        "    let body = body.into_iter().flatten().flatten().collect::<Vec<u8>>();",
        "a_large_version_is_streamed",
    ),
    # Credentials.
    server_lib("auth/caller.rs")(
        "token-reach", "a token reaches only tokens that can do no more and live no longer",
        "            && within(&self.grants.groups, &other.grants.groups)\n            && ends\n", "",
        "a_token_reaches_only_tokens_that_can_do_no_more",
    ),
    throttle(
        "throttle-eviction", "a flood of names does not reset what was counted", "(entry.count, entry.last, *key)", "(0, entry.last, *key)",
        "a_flood_of_names_does_not_evict_counters",
    ),
    server_lib("auth/hash_queue.rs")(
        "login-turns", "logins are served round-robin by network", "            self.rotation.push_back(line);\n", "            self.rotation.push_front(line);\n",
        "networks_and_lanes_take_turns",
    ),
    server_lib("auth/hash_queue.rs")(
        "login-positions", "one network does not take all positions of the login queue", "lane.len_of(name) < OPEN_MAX_PER_LINE\n", "lane.len_of(name) < 10 * OPEN_MAX_PER_LINE\n",
        "one_network_takes_neither_all_positions_nor_reserved_ones",
    ),
    both_it("orrery-server/src/app/tokens.rs")(
        "token-siblings", "a token sees and revokes no stronger sibling",
        "caller.may_everywhere(Right::Administer))\n        && caller.covers_token(token)\n", "caller.may_everywhere(Right::Administer))\n",
        "a_token_reaches_nothing_beyond_itself",
    ),
    both_it("orrery-server/src/app/accounts.rs")(
        "token-creates-users", "a token creates no accounts", "    caller.need_interactive_login()?;\n    let AccountDraft", "    let AccountDraft",
        "a_token_reaches_nothing_beyond_itself",
    ),
    both_it("orrery-compile-service/src/credentials.rs")(
        "password-of-another-host", "a hidden password goes to no other host",
        "None if has_hidden_password(given) && is_same_host => CredentialChange::Keep,",
        "None if has_hidden_password(given) || is_same_host => CredentialChange::Keep,", "passwords_of_repositories_are_sealed",
    ),
    compiles_lib("repository.rs")(
        "password-in-address", "credentials are apart from addresses", "(format!(\"{scheme}://{rest}\"), credential)",
        "(format!(\"{scheme}://{userinfo}@{rest}\"), credential)", "credentials_are_apart_from_addresses",
    ),
    compiles_lib("symlinks.rs")(
        "escaping-links", "links out of a repository are refused", "        return !found.starts_with(root);", "        return false;",
        "links_out_of_a_checkout_are_found",
    ),
    compiles_lib("symlinks.rs")(
        "escaping-dangling-links", "links out of a repository to what does not exist yet are refused",
        "        if !reached.starts_with(root) {\n            return true;\n        }\n", "", "links_out_of_a_checkout_are_found",
    ),
    # Leases.
    server_it("process/environment_lifecycle.rs")(
        "unfenced-deletion", "an environment is deleted only by the process that holds its lease",
        "let lease = self.acquire(store)?;\n        self.remove_files(record);",
        "let lease = match self.acquire(store) {\n            Ok(lease) => lease,\n            Err(error) => {\n"
        "                store.records().delete_environment_contents(record.key, self.app.now())?;\n                return Err(error.into());\n            }\n        };\n"
        "        self.remove_files(record);",
        "only_the_lease_holder_deletes_an_environment",
    ),
    at("orrery-handlers", "--lib", "crates/orrery-handlers/src/target/permit.rs")(
        "permit-revived", "a permit that is over is not revived",
        "(current > since_boot_ns()).then(|| current.max(end.0))", "Some(current.max(end.0))", "a_permit_ends_on_time_and_is_not_revived",
    ),
    at("orrery-handlers", "--lib", "crates/orrery-handlers/src/target/local/walk.rs")(
        "foreign-links", "root follows no link that a user put into a path",
        "followed.into_iter().find(|(uid, _)| *uid != end.uid)", "followed.into_iter().find(|_| false)",
        "links_of_a_user_are_not_followed_to_foreign_directories",
    ),
    at("orrery-handlers", "--lib", "crates/orrery-handlers/src/target/local/mod.rs")(
        "descriptors", "a lack of descriptors fails no resource", "if is_over || began.elapsed() > DESCRIPTORS_WITHIN {",
        "if is_over || began.elapsed() > Duration::ZERO * u32::from(DESCRIPTORS_WITHIN.is_zero()) {",
        "exhausted_descriptors_are_waited_for",
    ),
    at("orrery-executor", "it", "crates/orrery-executor/src/lifecycle.rs")(
        "work-without-permit", "nothing begins when the right to act is over",
        "if !self.permit.as_ref().is_some_and(Permit::is_over) {", "if true || !self.permit.as_ref().is_some_and(Permit::is_over) {",
        "nothing_starts_after_the_permit_ended",
    ),
    at("orrery-store", "--lib", "crates/orrery-store/src/postgres/leases.rs")(
        "frozen-in-transaction", "a holder that is frozen in a transaction keeps nothing", "greatest(lasts / 1500, 2000)::text", "'60000'",
        "a_holder_frozen_in_a_transaction_loses_its_lease",
    ),
    at("orrery-store", "it", "crates/orrery-store/src/records/dry_runs.rs")(
        "dry-run-claim", "what a replaced process writes about a dry run is refused",
        "            claim.check(sql)?;\n            let insert", "            let insert", "dry_runs_are_fenced",
    ),
    # Effects that must not be repeated.
    program("crates/orrery-executor/src/worker.rs")(
        "unrecorded-effects", "an effect that must not be repeated is recorded before it begins",
        "        shared.effect_log.record_start(store_handle, started)?;\n", "        let _ = (store_handle, started);\n",
        "effects/kills_of_the_server/sqlite", "effects/kills_of_the_server/postgres", "handler_effects/declared_effects_happen_once/sqlite",
        meets=("repeated-effects", "no-reading-back", "endless-permit", "plan-of-unknown", "lost-results"),
    ),
    program("sdk/python/src/inmanta/agent/handler.py")(
        "undeclared-effects", "what a handler declares is recorded before it begins",
        "        if method in _names(self.unrepeatable):\n            ctx.begin_effect()\n", "        return\n",
        "handler_effects/declared_effects_happen_once/sqlite", meets=("repeated-effects", "no-reading-back"),
    ),
    program("crates/orrery-handler-host/src/handler_host/pool.rs")(
        "repeated-effects", "an effect of a killed host is not repeated",
        "            if context.has_begun_effect() {\n                return OperationResult::Ended(end);\n            }\n", "",
        "handler_effects/effects_of_a_killed_host_are_unknown",
    ),
    program("crates/orrery-executor/src/effects.rs")(
        "no-reading-back", "a handler that reads back is not parked", "        None if reads_back => RunDecision::Run(Some(effect.started)),\n",
        "        None if reads_back && false => RunDecision::Run(Some(effect.started)),\n", "handler_effects/what_a_handler_reads_back_is_not_parked",
    ),
    program("crates/orrery-handler-host/src/handler_host/operation.rs")(
        "uncancelled-hosts", "a fenced owner ends its hosts",
        "            (None, Some(reason)) => {", "            (None, Some(reason)) if !context.cancel_token().is_unauthorized() => {",
        "handler_effects/a_fenced_owner_ends_its_hosts", meets=("endless-permit",),
    ),
    # The process role also revokes its permits, so tests of a whole server pass without this protection.
    at("orrery-handlers", "--lib", "crates/orrery-handlers/src/target/permit.rs")(
        "endless-permit", "a permit ends by its own clock", "        end != UNLIMITED && end <= since_boot_ns()\n",
        "        end == OVER\n", "a_permit_ends_on_time_and_is_not_revived",
    ),
    program("crates/orrery-executor/src/writer.rs")(
        "lost-results", "results are kept until the database takes them", "if !error.is_temporary() || store_handle.permit.is_over() || began.elapsed() > limit {",
        "if !error.is_temporary() || store_handle.permit.is_over() || began.elapsed() <= limit {", "effects/outages_of_the_database",
    ),
    program("crates/orrery/src/commands/remote/dry_run.rs")(
        "plan-of-unknown", "a plan of a server tells effects with unknown outcomes",
        "        Some(None) => unknown.map(|effect| effects::pending_decision(effect.started)),", "        Some(None) => None,",
        "unknown_effects/plans_and_status_of_servers_tell_them",
    ),
    program("crates/orrery/src/commands/modules/repositories.rs")(
        "modules-anywhere", "modules are cloned into the checkout only", "            if !is_below(path, &options.project_dir) {\n",
        "            if false && !is_below(path, &options.project_dir) {\n", "compile_service/modules_are_cloned_into_the_checkout_only",
    ),
    program("crates/orrery-handler-host/src/target_host/sandbox_boundary.rs")(
        "covers-as-machine", "what a sandbox covers is not taken for the machine", "        match self.covers.contains(",
        "        match false && self.covers.contains(", "own_machine/what_a_sandbox_covers_is_not_taken_for_the_machine",
    ),
    both_it("orrery-server/src/contents.rs")(
        "guessed-contents", "a version that names the content of others gets no right to it",
        "    used.retain(|hash| !known.contains(hash) && !foreign.contains(hash));\n", "    used.retain(|hash| !known.contains(hash));\n",
        "contents_of_other_tenants_are_not_found_by_guessing",
    ),
    at("orrery-server", "it", "crates/orrery-store/src/records/contents.rs")(
        "contents-of-all", "handlers get the contents of their own environment only",
        "(SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder > ?3))\";", "(SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder < ?3))\";",
        "an_environment_gets_its_own_contents_only_on_sqlite", "an_environment_gets_its_own_contents_only_on_postgres",
    ),
]
