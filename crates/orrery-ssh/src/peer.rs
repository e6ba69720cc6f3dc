//! Callbacks of a connection: judges the host key, and refuses whatever the machine asks for.

use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use russh::Channel;
use russh::client::{self, ChannelOpenHandle, DisconnectReason, Msg, Session};
use russh::keys::PublicKeyOrCertificate;

use crate::error::HostKeyError;
use crate::host_key::{HostKeyCheck, PresentedKey};

/// Callbacks of a connection.
pub(crate) struct Peer {
    pub(crate) check: Arc<HostKeyCheck>,
    pub(crate) end: Arc<Mutex<Option<String>>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error(transparent)]
    Protocol(#[from] russh::Error),
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
}

/// Refuses a channel that the machine opens: nothing was asked of it.
async fn refuse(reply: ChannelOpenHandle) -> Result<(), PeerError> {
    reply.reject(russh::ChannelOpenFailure::AdministrativelyProhibited).await;
    Ok(())
}

impl client::Handler for Peer {
    type Error = PeerError;

    async fn check_server_key(
        &mut self,
        presented: &PublicKeyOrCertificate,
    ) -> Result<bool, PeerError> {
        let (check, presented) = (Arc::clone(&self.check), PresentedKey::new(presented));
        let judged = tokio::task::spawn_blocking(move || check.judge(&presented)).await;
        judged.map_err(|_| russh::Error::Inconsistent)??;
        Ok(true)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<PeerError>) -> Result<(), PeerError> {
        let text = match &reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                format!("the machine closed the connection: {:?}", info.message)
            }
            DisconnectReason::Error(PeerError::Protocol(russh::Error::KeepaliveTimeout)) => {
                "the machine does not answer any more".to_owned()
            }
            DisconnectReason::Error(error) => format!("the connection was lost: {error}"),
        };
        *self.end.lock().ignore_poison() = Some(text);
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), PeerError> {
        refuse(reply).await
    }
}
