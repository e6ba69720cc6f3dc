//! `orrery server`: configuration, start and shutdown of a server.

mod isolation;
mod own_machine;
mod security;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_base::byte_size;
use orrery_compile_service::{CompileOptions, CompileService, ServerAddress};
use orrery_executor::WorkerLimits;
use orrery_handlers::clock::now;
use orrery_inmanta_api::inmanta_api;
use orrery_server::telemetry::{self, TelemetryError};
use orrery_server::{
    ContentLimits, GatewayError, GatewayOptions, Isolation, ProcessOptions, ProcessRole,
    ServerSettings, ServerState, Tls, compile_context, start_gateway,
};
use orrery_store::{Holder, Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::server::{LogFormat, Role, Server, ServerOptions};
use crate::{Exit, console_files, output};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8888);
const CONFIG: &str = "/etc/orrery/server.toml";
const WORKERS: u16 = 16;
const HOST_MEMORY_MIB: u64 = 4096;
/// The compiler cannot start all its threads with less, even for a small model.
const COMPILE_MEMORY_MIN_MIB: u64 = 512;
/// Below this number of file descriptors, a warning is logged.
const DESCRIPTORS_FEW: u64 = 16_384;
const AUDIT_RETENTION_DAYS: u32 = 365;
/// Duration of a lease after its last renewal.
const LEASE: Duration = Duration::from_secs(15);
/// Maximum time for running requests after a shutdown request.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Error that prevents a server from starting or running.
#[derive(Debug, thiserror::Error)]
enum ServerStartError {
    #[error("cannot read configuration file {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("configuration file {} is invalid: {reason}", path.display())]
    Config { path: PathBuf, reason: String },
    #[error("no home directory for data; set a directory with --data")]
    NoHome,
    #[error(
        "roles in different processes need --database postgres://…: omit --role, or name all roles"
    )]
    SplitRoles,
    #[error("{}", match .0 { TelemetryError::Traces { .. } | TelemetryError::Address { .. } => "--traces", _ => "--log" })]
    Telemetry(#[from] TelemetryError),
    #[error("{option}: must be at least 1")]
    Zero { option: &'static str },
    #[error(
        "--compile-memory {given}: a compile needs at least {COMPILE_MEMORY_MIN_MIB} MiB; 0 sets no limit"
    )]
    CompileMemory { given: u64 },
    #[error(
        "--database {scheme}://… is not supported: use postgres://user:password@host/database or the path of a file"
    )]
    Scheme { scheme: String },
    #[error("--api-address {given}: {reason}")]
    ApiAddress { given: String, reason: String },
    #[error("--data: cannot create {}", path.display())]
    Data { path: PathBuf, source: std::io::Error },
    #[error("--database")]
    Store(#[from] StoreError),
    #[error("--database-connections: {0}")]
    Connections(&'static str),
    #[error("--listen {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error(transparent)]
    SecurityError(#[from] security::SecurityError),
    #[error("cannot run the server")]
    Run(#[source] std::io::Error),
}

pub(super) fn run(options: Server) -> Exit {
    match try_run(options) {
        Ok(()) => Exit::Done,
        Err(failure) => super::deploy::failed(&failure),
    }
}

/// Merges all options: file, variables, flags, in ascending precedence.
fn resolve(given: Server) -> Result<ServerOptions, ServerStartError> {
    let (path, required) = match given.config {
        Some(path) => (path, true),
        None => (PathBuf::from(CONFIG), false),
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if !required && error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ServerStartError::Unreadable { path, source }),
    };
    let file: ServerOptions = toml::from_str(&text)
        .map_err(|error| ServerStartError::Config { path, reason: config_error(&text, &error) })?;
    let options = given.options.or(file);
    let counts = [
        ("--workers", options.workers.map(u64::from)),
        ("--local-workers", options.local_workers.map(u64::from)),
        ("--compiles", options.compiles.map(u64::from)),
        ("--compile-time", options.compile_time),
    ];
    if let Some((option, _)) = counts.into_iter().find(|(_, count)| *count == Some(0)) {
        return Err(ServerStartError::Zero { option });
    }
    if let Some(given) =
        options.compile_memory.filter(|mib| (1..COMPILE_MEMORY_MIN_MIB).contains(mib))
    {
        return Err(ServerStartError::CompileMemory { given });
    }
    Ok(options)
}

/// Error in a configuration file with its location. Omits the line itself, which may contain a
/// password.
fn config_error(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let reason = match message.rsplit_once(", expected ") {
        // The rest repeats the given value.
        Some((given, expected)) if given.starts_with("invalid ") => {
            let is_number = expected.starts_with(['u', 'i']) && expected[1..].parse::<u8>().is_ok();
            format!("expected {}", if is_number { "a whole number" } else { expected })
        }
        _ => message.to_owned(),
    };
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return reason };
    let line = before.matches('\n').count() + 1;
    let name = text.lines().nth(line - 1).and_then(|line| line.split_once('='));
    match name.map(|(name, _)| name.trim()) {
        Some(name) if !name.is_empty() => format!("line {line}, {name}: {reason}"),
        _ => format!("line {line}: {reason}"),
    }
}

fn data_directory() -> Result<PathBuf, ServerStartError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/orrery"));
    }
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
    let state = state.map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Ok(state.or_else(home).ok_or(ServerStartError::NoHome)?.join("orrery"))
}

/// Creates the data directory with mode 0700. An existing one of this user is closed to other
/// users.
#[expect(clippy::verbose_bit_mask, reason = "permissions are read as masks")]
fn prepare_data(data: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let found = std::fs::metadata(data)?;
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let path = data.display();
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    // Shared directories such as /tmp stay as they are.
    if is_own && mode & 0o1002 == 0 {
        std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o700))?;
        let before = format!("{mode:04o}");
        tracing::info!(%path, before, "data directory was readable by other users; changed its mode to 0700");
    } else {
        tracing::warn!(%path, "data directory is readable by other users: change its mode to 0700");
    }
    Ok(())
}

fn is_postgres(database: &str) -> bool {
    database.starts_with("postgres://") || database.starts_with("postgresql://")
}

fn open_store(options: &ServerOptions, data: &Path) -> Result<Store, ServerStartError> {
    let holder = Holder::this_process("orrery server", now());
    let connections = options.database_connections;
    if connections == Some(0) {
        return Err(ServerStartError::Connections("must be at least 1"));
    }
    let database = options.database.as_deref();
    if connections.is_some() && !database.is_some_and(is_postgres) {
        return Err(ServerStartError::Connections("only for --database postgres://…"));
    }
    Ok(match database {
        Some(url) if is_postgres(url) => match connections {
            Some(connections) => Store::connect_with_pool_size(url, &holder, connections.into())?,
            None => Store::connect(url, &holder)?,
        },
        Some(path) => {
            let path = path.strip_prefix("sqlite://").unwrap_or(path);
            if let Some((scheme, _)) = path.split_once("://") {
                return Err(ServerStartError::Scheme { scheme: scheme.to_owned() });
            }
            Store::open(path, &holder)?
        }
        None => Store::open(data.join("server.db"), &holder)?,
    })
}

fn try_run(given: Server) -> Result<(), ServerStartError> {
    let rotate = given.rotate_secret_key;
    crate::target_host::hide_memory();
    let config = given.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    let options = resolve(given)?;
    let format = match options.log_format {
        Some(LogFormat::Json) => telemetry::LogFormat::Json,
        _ => telemetry::LogFormat::Text,
    };
    let filter = options.log.as_deref().unwrap_or("info");
    let traces = options.traces.as_deref();
    let _telemetry = telemetry::start(filter, format, output::stderr_has_colour(), traces)?;
    let data = options.data.clone().map_or_else(data_directory, Ok)?;
    // Sandboxes hide the same absolute paths from any working directory.
    let data = std::path::absolute(&data)
        .map_err(|source| ServerStartError::Data { path: data.clone(), source })?;
    let data = std::path::absolute(data).map_err(ServerStartError::Run)?;
    prepare_data(&data).map_err(|source| ServerStartError::Data { path: data.clone(), source })?;
    let descriptors = crate::descriptors::raise_limit();
    if descriptors < DESCRIPTORS_FEW {
        tracing::warn!(
            descriptors,
            "few file descriptors: raise the hard limit (LimitNOFILE, ulimit -Hn) for more connections at once"
        );
    }
    let all = [Role::Api, Role::Process, Role::Gateway];
    let roles = options.role.clone().unwrap_or_else(|| all.to_vec());
    let database = options.database.as_deref();
    let shared = database.is_some_and(is_postgres);
    // A missing gateway matters only to remote agents.
    if !shared && ![Role::Api, Role::Process].iter().all(|role| roles.contains(role)) {
        return Err(ServerStartError::SplitRoles);
    }
    let address = options.listen.unwrap_or(LISTEN);
    let tls = security::tls(&options, address, &data)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServerStartError::Run)?;
    let store = open_store(&options, &data)?;
    let program = std::env::current_exe().map_err(ServerStartError::Run)?;
    let runs_code = roles.contains(&Role::Process) && !rotate;
    let isolation = match runs_code {
        true => Some(isolation::choose(&options, &program, &data, &config, &store)?),
        false => None,
    };
    let settings = ServerSettings {
        local_repositories: options.allow_local_repositories.unwrap_or(false),
        auth: security::auth(&options, address, tls.is_some())?,
        master_key: security::master_key(&options, &data),
        audit_retention: audit_retention(&options),
        contents: content_limits(&options),
        isolation: isolation.as_ref().map(Isolation::name),
        own_machine: isolation
            .as_ref()
            .map(|isolation| own_machine::policy(&options, isolation).as_str()),
    };
    let app = ServerState::new(store, settings);
    if rotate {
        return Ok(security::rotate(&app)?);
    }
    security::check_key(&app, &options)?;
    let memory = byte_size::from_mib(options.host_memory.unwrap_or(HOST_MEMORY_MIB));
    let api_address = options.api_address.as_deref().map(api_address).transpose()?;
    // Other roles run no code.
    let isolation = isolation.unwrap_or(Isolation::Shared);
    let ours = isolation.clone();
    let own_machine = own_machine::options(&options, &isolation, &program, &data, &config);
    let compiles =
        |here| compile_options(&options, &data, program, api_address.unwrap_or(here), isolation);
    let process = ProcessOptions {
        data: data.clone(),
        workers: worker_limits(&options),
        lease: shared.then_some(LEASE),
        host_memory: (memory > 0).then_some(memory),
        isolation: ours,
        own_machine,
    };
    let gateway = roles.contains(&Role::Gateway).then(|| GatewayOptions {
        listen: options.gateway_listen.unwrap_or_else(|| next_to(address)),
        address: options.gateway_address.clone(),
        peer_address: options.gateway_peer_address.clone(),
        names: options.gateway_names.clone().unwrap_or_default(),
        program: options.gateway_program.clone().or_else(agent_program),
    });
    let format = options.log_format.unwrap_or(LogFormat::Text);
    let told = ListenInfo { address, format };
    let served = runtime.block_on(serve(app, &roles, process, gateway, compiles, told, tls));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Limits of concurrent handlers.
fn worker_limits(options: &ServerOptions) -> WorkerLimits {
    let limits = WorkerLimits::from_setting(options.workers, WORKERS);
    options.local_workers.map_or(limits, |local| limits.local_at_most(local.into()))
}

/// The program of an agent beside this one.
fn agent_program() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("orrery-agent");
    beside.is_file().then_some(beside)
}

fn audit_retention(options: &ServerOptions) -> Option<Duration> {
    let days = options.audit_retention.unwrap_or(AUDIT_RETENTION_DAYS);
    (days > 0).then(|| Duration::from_secs(u64::from(days) * 24 * 3600))
}

fn content_limits(options: &ServerOptions) -> ContentLimits {
    let usual = ContentLimits::default();
    let bytes = |mib: Option<u32>| mib.map(|mib| u64::from(mib) << 20);
    let grace = options.contents_grace.map(|hours| Duration::from_secs(u64::from(hours) * 3600));
    ContentLimits {
        grace: grace.unwrap_or(usual.grace),
        account_max: bytes(options.contents_quota).unwrap_or(usual.account_max),
        all_max: bytes(options.contents_quota_all).unwrap_or(usual.all_max),
    }
}

/// URL of the API in another process.
fn api_address(given: &str) -> Result<ServerAddress, ServerStartError> {
    let bad = |reason: &str| ServerStartError::ApiAddress {
        given: given.to_owned(),
        reason: format!("{reason}; expected a URL such as https://orrery.example.com:8888"),
    };
    let (scheme, rest) = given.split_once("://").ok_or_else(|| bad("no https://"))?;
    let secure = match scheme {
        "https" => true,
        "http" => false,
        _ => return Err(bad("neither https nor http")),
    };
    let rest = rest.trim_end_matches('/');
    if rest.contains(['/', '@', '?', '#']) {
        return Err(bad("more than a host and port"));
    }
    // IPv6 addresses have colons in brackets.
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().map_err(|_| bad("invalid port"))?)
        }
        _ => (rest, if secure { 443 } else { 80 }),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(bad("no host"));
    }
    Ok(ServerAddress { host, port, secure, tls: None })
}

/// The next port; port 0 stays 0.
fn next_to(address: SocketAddr) -> SocketAddr {
    let port = if address.port() == 0 { 0 } else { address.port().saturating_add(1) };
    SocketAddr::new(address.ip(), port)
}

fn compile_options(
    options: &ServerOptions,
    data: &Path,
    program: PathBuf,
    at: ServerAddress,
    isolation: Isolation,
) -> CompileOptions {
    let usual = CompileOptions::new(data.to_owned(), program, at, isolation);
    let memory = options.compile_memory.map(byte_size::from_mib);
    CompileOptions {
        parallel: options.compiles.map_or(usual.parallel, |count| usize::from(count.max(1))),
        time_max: options.compile_time.map_or(usual.time_max, Duration::from_secs),
        memory_max: memory.map_or(usual.memory_max, |bytes| (bytes > 0).then_some(bytes)),
        ..usual
    }
}

/// URL of the server. If it listens on all networks, uses the host name.
fn url_of(address: SocketAddr, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    match security::host_name() {
        Some(name) if address.ip().is_unspecified() => {
            format!("{scheme}://{name}:{}", address.port())
        }
        _ => format!("{scheme}://{address}"),
    }
}

/// Listen address and log format.
struct ListenInfo {
    address: SocketAddr,
    format: LogFormat,
}

async fn serve(
    app: ServerState,
    roles: &[Role],
    process: ProcessOptions,
    gateway: Option<GatewayOptions>,
    compiles: impl FnOnce(ServerAddress) -> CompileOptions,
    ListenInfo { address, format }: ListenInfo,
    tls: Option<Tls>,
) -> Result<(), ServerStartError> {
    let stop = CancellationToken::new();
    let server = orrery_server::Server::bind(app.clone(), address).await;
    let server = server.map_err(|source| ServerStartError::Listen { address, source })?;
    let mut server = server.with_api(inmanta_api()).with_console(console_files::FILES);
    let address = server.address().map_err(ServerStartError::Run)?;
    let url = url_of(address, tls.is_some());
    if let Some(tls) = tls.clone() {
        server = server.with_tls(tls);
    }
    let gateway = match gateway {
        Some(options) => Some(start_gateway(&app, options).await?),
        None => None,
    };
    // Last, once nothing can fail: the printed link must work. Only the API role has one.
    if roles.contains(&Role::Api) {
        security::announce_certificate(tls.as_ref(), &url, format);
        security::prepare_accounts(&app, &url, format).await?;
    } else {
        server = server.without_api();
    }
    let mut working = None;
    if roles.contains(&Role::Process) {
        let compiles = compiles(ServerAddress::from_listen(address, tls.clone()));
        let compiles = CompileService::start(compile_context(&app), compiles)
            .map_err(ServerStartError::Run)?;
        let role = ProcessRole::start(app, process).map_err(ServerStartError::Run)?;
        working = Some((compiles, role));
    }
    // The only line on standard output: scripts wait for it.
    let _ = output::print(|out| writeln!(out, "orrery server listens on {url}"));
    tracing::info!(%address, ?roles, "server ready");
    let mut interrupted = signal(SignalKind::interrupt()).map_err(ServerStartError::Run)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(ServerStartError::Run)?;
    let mut reload = signal(SignalKind::hangup()).map_err(ServerStartError::Run)?;
    let mut running = tokio::spawn(server.run(stop.clone()));
    let ended = loop {
        tokio::select! {
            ended = &mut running => break Some(ended),
            _ = interrupted.recv() => break None,
            _ = terminated.recv() => break None,
            _ = reload.recv() => security::reload(tls.as_ref()),
        }
    };
    tracing::info!("server stopping");
    stop.cancel();
    if ended.is_none() && tokio::time::timeout(STOP_WITHIN, &mut running).await.is_err() {
        tracing::warn!("requests exceeded the shutdown timeout");
    }
    if let Some((compiles, role)) = working {
        // Waits for pending writes.
        let end = move || {
            compiles.stop();
            role.stop();
        };
        let ended = tokio::task::spawn_blocking(end).await;
        if ended.is_err() {
            tracing::error!("the process role did not shut down cleanly");
        }
    }
    if let Some(gateway) = gateway {
        gateway.stop().await;
    }
    match ended {
        Some(Ok(Err(error))) => Err(ServerStartError::Run(error)),
        _ => Ok(()),
    }
}
