//! The first account of an installation: from a password that the administrator gives, or by a link that works once.

use orrery_model::{Duration, SecretText, Timestamp};
use orrery_store::{AccountRecord, NewAccount};
use uuid::Uuid;

use crate::app::App;
use crate::auth::secrets::{Minted, TICKET, hash_of};
use crate::auth::{check_password, normalized};
use crate::problem::ServerError;

/// Where the hash of the ticket and its end are remembered.
const REMEMBERED: &str = "setup ticket";

const TICKET_LENGTH: Duration = Duration::from_secs(3600);

/// The name of the account that a given password makes.
const ADMIN: &str = "admin";

/// How an installation stands when a server starts.
#[derive(Debug)]
pub enum FirstStart {
    /// There are accounts.
    HasAccounts,
    /// The account `admin` was made with the password that was given.
    AdminMade,
    /// Nobody can log in yet. Whoever has this ticket can make the first account, once, within the hour.
    Ticket(SecretText),
}

/// Prepares the first account if there is none. Each start makes earlier tickets worthless.
///
/// # Errors
/// If the password is not good enough, or those of the store.
pub async fn first_start(
    app: &App,
    admin_password: Option<&SecretText>,
) -> Result<FirstStart, ServerError> {
    if !app.with_store(|store| store.records().has_no_accounts()).await? {
        return Ok(FirstStart::HasAccounts);
    }
    if let Some(password) = admin_password {
        let made = make_first(app, ADMIN.to_owned(), password, None).await?;
        return Ok(made.map_or(FirstStart::HasAccounts, |_| FirstStart::AdminMade));
    }
    let Minted { secret, hash } = Minted::ticket()?;
    let value = remembered_as(&hash, app.now() + TICKET_LENGTH);
    app.with_store(move |store| store.records().remember(REMEMBERED, &value)).await?;
    Ok(FirstStart::Ticket(secret))
}

fn remembered_as(hash: &[u8; 32], expires: Timestamp) -> String {
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex} {}", expires.0)
}

/// Makes the first account for somebody who has the ticket, and uses it up.
pub(crate) async fn use_ticket(
    app: &App,
    ticket: &SecretText,
    name: String,
    password: &SecretText,
) -> Result<AccountRecord, ServerError> {
    let refused = || ServerError::Unauthenticated("the set-up link is used up, expired or wrong");
    let remembered = app.with_store(|store| store.records().remembered(REMEMBERED)).await?;
    let remembered = remembered.ok_or_else(refused)?;
    let ends = remembered.split_once(' ').and_then(|(_, ends)| ends.parse().ok());
    let ends = Timestamp(ends.ok_or_else(refused)?);
    let shown = remembered_as(&hash_of(ticket.expose()), ends);
    let same = subtle::ConstantTimeEq::ct_eq(shown.as_bytes(), remembered.as_bytes());
    if !ticket.expose().starts_with(TICKET) || !bool::from(same) || ends <= app.now() {
        return Err(refused());
    }
    make_first(app, name, password, Some(remembered)).await?.ok_or_else(refused)
}

async fn make_first(
    app: &App,
    name: String,
    password: &SecretText,
    ticket: Option<String>,
) -> Result<Option<AccountRecord>, ServerError> {
    let password = normalized(password);
    check_password("password", &password)?;
    let kept = app.auth().passwords.hash("set-up", password).await?;
    let now = app.now();
    app.change(move |store| {
        let uuid = Uuid::new_v4().into_bytes();
        let password = Some(kept.as_str());
        let new = NewAccount { uuid, name: &name, password, issuer: None, admin: true };
        let ticket = ticket.as_deref().map(|value| (REMEMBERED, value));
        store.records().create_first_account(&new, ticket, now)
    })
    .await
}
