//! Blocking transport over a shared connection, with privilege.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::target::{
    ExecLimits, InterruptCause, Output, RemoteProcess, Transport, TransportError,
    TransportErrorKind,
};
use orrery_handlers::{CancelToken, SecretSource};
use orrery_model::{Privilege, SshOptions};
use tokio_util::sync::CancellationToken;

use crate::command::{Command, CommandError, open_channel, request_start, run_command};
use crate::privilege::{Elevation, WrappedCommand, quote};
use crate::process::serve;
use crate::route::secret_source;
use crate::runtime::SshRuntime;
use crate::session::{ConnectionState, Session, StartError};

/// First and longest interval between looks at a cancellation flag, which has no notification.
const POLL_FIRST: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(200);
/// Time for which a refused password is not tried again: accounts are locked after some attempts.
const REFUSAL_TTL: Duration = Duration::from_secs(30);
/// Time that a cancelled command has to end on this side.
const CANCEL_TIME: Duration = Duration::from_secs(6);

/// Transport to one machine as one user, with or without privilege. Clones of its connection are
/// shared by all transports to the same destination.
pub struct SshTransport {
    runtime: SshRuntime,
    session: Arc<Session>,
    destination: String,
    privilege: Option<Privilege>,
    sudo_secret: Option<SecretSource>,
    /// Way to the rights of root, as found on the connection with this number.
    elevation: Mutex<Option<(u64, Elevation)>>,
    /// Refusal of the password, with the connection and time.
    refusal: Mutex<Option<(u64, Instant, TransportError)>>,
}

impl fmt::Debug for SshTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshTransport({})", self.destination)
    }
}

impl SshTransport {
    pub(crate) fn new(runtime: SshRuntime, session: Arc<Session>, options: &SshOptions) -> Self {
        SshTransport {
            runtime,
            destination: session.address(),
            session,
            privilege: options.sudo,
            sudo_secret: options.sudo_secret.as_deref().map(secret_source),
            elevation: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    /// State of the connection.
    pub fn state(&self) -> ConnectionState {
        self.session.state()
    }

    /// Measures the round trip of an existing connection in the background. Neither connects nor
    /// counts as a use.
    pub fn refresh_latency(&self, limit: Duration) {
        let session = Arc::clone(&self.session);
        self.runtime.handle().spawn(async move { session.refresh_latency(limit).await });
    }

    /// Tries to connect, in the background. Returns false if too many such attempts are under way.
    pub(crate) fn probe(&self) -> bool {
        let Ok(slot) = self.runtime.probes().try_acquire_owned() else { return false };
        let session = Arc::clone(&self.session);
        self.runtime.handle().spawn(async move {
            // A failure is recorded in the state of the connection.
            let _ = session.link().await;
            drop(slot);
        });
        true
    }

    /// Connects if there is no connection.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn connect(&self, stop: &CancelToken) -> Result<(), TransportError> {
        let session = Arc::clone(&self.session);
        self.wait(stop, |cancel| async move {
            // In a task of its own: others wait for the same attempt.
            let connecting = tokio::spawn(async move { session.link().await.map(drop) });
            tokio::select! {
                () = cancel.cancelled() => Err(CommandError::NotStarted),
                connected = connecting => match connected {
                    Ok(connected) => {
                        connected.map_err(|error| CommandError::Start(StartError::Connect(error)))
                    }
                    Err(_) => Err(CommandError::NotStarted),
                },
            }
        })
    }

    /// Connects if necessary, at once whatever failed before, and measures a round trip.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn ping(&self, stop: &CancelToken) -> Result<Duration, TransportError> {
        self.session.allow_attempt();
        let session = Arc::clone(&self.session);
        self.wait(stop, |cancel| async move {
            tokio::select! {
                () = cancel.cancelled() => Err(CommandError::NotStarted),
                latency = session.measure_latency() => latency.map_err(CommandError::Start),
            }
        })
    }

    /// Runs a command as the remote user, without privilege.
    ///
    /// # Errors
    /// As [`Transport::exec`].
    pub fn exec_as_user(
        &self,
        command: &str,
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        self.run(Elevation::None, command, &[], limits, stop)
    }

    fn run(
        &self,
        elevation: Elevation,
        script: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        let session = Arc::clone(&self.session);
        let (script, input) = (script.to_owned(), input.to_owned());
        let command = Command { elevation, script, input, limits: *limits };
        self.wait(stop, |cancel| run_command(session, command, cancel))
    }

    /// Error of a command that the login shell, `sudo` or `doas` did not start.
    fn not_permitted(&self, excerpt: &str) -> TransportError {
        let (program, help) = match self.privilege {
            None | Some(Privilege::User) => (
                "the login shell of the user",
                "give the user a login shell that runs commands, or name another user",
            ),
            Some(Privilege::Sudo) => (
                "sudo",
                "allow the user to run /bin/sh with sudo without a password, or name the secret with the password (`sudo_secret`)",
            ),
            Some(Privilege::Doas) => (
                "doas",
                "permit the user without a password (`permit nopass` in doas.conf): doas reads passwords only from a terminal",
            ),
        };
        let reason = match excerpt.is_empty() {
            true => format!("{program} refuses to run commands"),
            false => format!("{program} refuses to run commands: {excerpt}"),
        };
        TransportError::new(TransportErrorKind::Refused, &self.destination, reason).with_help(help)
    }

    /// Returns the way to the rights of root. With a password, the machine is asked once per
    /// connection if it wants it, and if it accepts it: a password that is not asked for would be
    /// input of the command.
    fn elevation(&self, stop: &CancelToken) -> Result<Elevation, TransportError> {
        let plain = Elevation::without_password(self.privilege);
        let (Elevation::Sudo, Some(secret)) = (&plain, &self.sudo_secret) else {
            return Ok(plain);
        };
        if let Some((generation, elevation)) = &*self.elevation.lock().ignore_poison()
            && *generation == self.session.generation()
        {
            return Ok(elevation.clone());
        }
        if let Some((generation, at, refusal)) = &*self.refusal.lock().ignore_poison()
            && *generation == self.session.generation()
            && at.elapsed() < REFUSAL_TTL
        {
            return Err(refusal.clone());
        }
        let limits = ExecLimits { timeout: Some(Duration::from_secs(60)), output_bytes: 4096 };
        let probe = self.exec_as_user("sudo -n -- /bin/sh -c :", &limits, stop)?;
        let elevation = if probe.success() {
            Elevation::Sudo
        } else {
            let password = self.session.context().secrets.resolve(secret).map_err(|error| {
                let kind = TransportErrorKind::Refused;
                TransportError::new(kind, &self.destination, error.to_string())
            })?;
            let elevation = Elevation::SudoWithPassword(password);
            // Programs with an open input would wait: sudo asks for a wrong password again.
            if let Err(error) = self.run(elevation.clone(), ":", &[], &limits, stop) {
                if error.kind == TransportErrorKind::Refused {
                    let refusal = (self.session.generation(), monotonic(), error.clone());
                    *self.refusal.lock().ignore_poison() = Some(refusal);
                }
                return Err(error);
            }
            elevation
        };
        let found = (self.session.generation(), elevation.clone());
        *self.elevation.lock().ignore_poison() = Some(found);
        Ok(elevation)
    }

    /// Runs asynchronous work and waits for it, or for the cancellation.
    fn wait<T: Send + 'static, F>(
        &self,
        stop: &CancelToken,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<T, TransportError>
    where
        F: Future<Output = Result<T, CommandError>> + Send + 'static,
    {
        if let Some(cause) = stop.reason() {
            return Err(self.interrupted(TransportErrorKind::NotStarted, cause.into()));
        }
        let cancel = CancellationToken::new();
        let work = work(cancel.clone());
        let (sender, receiver) = mpsc::channel();
        self.runtime.handle().spawn(async move {
            let _ = sender.send(work.await);
        });
        let mut poll = POLL_FIRST;
        loop {
            let step = stop.remaining().map_or(poll, |left| left.min(poll));
            match receiver.recv_timeout(step) {
                Ok(result) => return result.map_err(|error| self.to_error(error, None)),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let reason = "the client was shut down";
                    let kind = TransportErrorKind::Lost;
                    return Err(TransportError::new(kind, &self.destination, reason));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            poll = (poll * 2).min(POLL_MAX);
            if let Some(cause) = stop.reason() {
                let cause = InterruptCause::from(cause);
                cancel.cancel();
                return match receiver.recv_timeout(CANCEL_TIME) {
                    Ok(result) => result.map_err(|error| self.to_error(error, Some(cause))),
                    Err(_) => Err(self.interrupted(TransportErrorKind::Interrupted, cause)),
                };
            }
        }
    }

    fn interrupted(
        &self,
        kind: fn(InterruptCause) -> TransportErrorKind,
        cause: InterruptCause,
    ) -> TransportError {
        let reason = match cause {
            InterruptCause::TimedOut => "timed out",
            InterruptCause::Cancelled => "cancelled",
        };
        TransportError::new(kind(cause), &self.destination, reason)
    }

    fn to_error(&self, error: CommandError, cause: Option<InterruptCause>) -> TransportError {
        let cause = cause.unwrap_or(InterruptCause::Cancelled);
        let new = |kind, reason: String| TransportError::new(kind, &self.destination, reason);
        match error {
            CommandError::Start(StartError::Connect(error)) => {
                let help = error.help();
                let error = new(TransportErrorKind::Unreachable, error.to_string());
                TransportError { help, ..error }
            }
            CommandError::Start(StartError::Refused(reason)) => {
                new(TransportErrorKind::Refused, reason)
            }
            CommandError::Start(StartError::Lost(reason)) | CommandError::Lost(reason) => {
                new(TransportErrorKind::Lost, reason)
            }
            CommandError::NotPermitted(excerpt) => self.not_permitted(&excerpt),
            CommandError::NotStarted => self.interrupted(TransportErrorKind::NotStarted, cause),
            CommandError::Cancelled => self.interrupted(TransportErrorKind::Interrupted, cause),
            CommandError::TimedOut => {
                self.interrupted(TransportErrorKind::Interrupted, InterruptCause::TimedOut)
            }
        }
    }
}

impl Transport for SshTransport {
    fn exec(
        &self,
        command: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        self.run(self.elevation(stop)?, command, input, limits, stop)
    }

    fn start(&self, command: &str, stop: &CancelToken) -> Result<RemoteProcess, TransportError> {
        let elevation = self.elevation(stop)?;
        let WrappedCommand { line, input_prefix } = elevation.wrap(command);
        let session = Arc::clone(&self.session);
        self.wait(stop, |cancel| async move {
            let mut channel = open_channel(&session, &cancel).await?;
            request_start(&session, &mut channel, &line).await.map_err(CommandError::Start)?;
            Ok(serve(session, channel, input_prefix, elevation))
        })
    }

    fn upload(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        stop: &CancelToken,
    ) -> Result<(), TransportError> {
        let path = quote(path);
        // `set -C` refuses an existing file, also a symbolic link.
        let command =
            format!("set -C && umask 077 && cat > {path} && chmod {:o} {path}", mode & 0o7777);
        let limits = ExecLimits { timeout: None, output_bytes: 4096 };
        let output = self.exec(&command, content, &limits, stop)?;
        if output.success() {
            return Ok(());
        }
        let reason = format!("cannot write {path}: {}", output.error_excerpt());
        Err(TransportError::new(TransportErrorKind::Upload, &self.destination, reason))
    }

    fn destination(&self) -> &str {
        &self.destination
    }

    fn generation(&self) -> u64 {
        self.session.generation()
    }
}
