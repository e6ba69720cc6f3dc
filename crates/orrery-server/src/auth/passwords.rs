//! Password policy and hashing.

use std::sync::{Arc, OnceLock};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use orrery_model::SecretText;
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio_util::sync::CancellationToken;
use unicode_normalization::UnicodeNormalization as _;

use crate::auth::hash_queue::{HashPermit, HashQueue, Line, QueuePosition};
use crate::error::ServerError;

const LENGTH_MIN: usize = 12;
const LENGTH_MAX: usize = 128;
/// From this length on, the rules on characters do not apply.
const LENGTH_LONG: usize = 20;
const CLASSES_MIN: usize = 3;

/// Normalizes texts that look the same to one spelling (NFKC).
pub(crate) fn normalized(password: &SecretText) -> SecretText {
    // One character can expand to many; the limit bounds the work.
    let characters = password.expose().nfkc().take(8 * LENGTH_MAX);
    SecretText::new(characters.collect::<String>())
}

/// Fails if a new password violates the policy.
pub(crate) fn check_password(field: &str, password: &SecretText) -> Result<(), ServerError> {
    let text = password.expose();
    let length = text.chars().count();
    if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
        let reason = format!("must have {LENGTH_MIN} to {LENGTH_MAX} characters");
        return Err(ServerError::field(field, reason));
    }
    let has = |class: fn(char) -> bool| usize::from(text.chars().any(class));
    let classes = has(char::is_lowercase)
        + has(char::is_uppercase)
        + has(char::is_numeric)
        + has(|c| !c.is_lowercase() && !c.is_uppercase() && !c.is_numeric());
    if classes < CLASSES_MIN && length < LENGTH_LONG {
        let reason = format!(
            "must have {CLASSES_MIN} of: lowercase letters, uppercase letters, digits, other characters; or {LENGTH_LONG} characters of any kind"
        );
        return Err(ServerError::field(field, reason));
    }
    Ok(())
}

/// Hashes passwords on blocking threads, a few at a time and fairly.
#[derive(Debug, Default)]
pub(crate) struct Passwords {
    queue: HashQueue,
    /// Hash for unknown users, so that a check takes as long as for existing ones.
    decoy: Arc<OnceLock<String>>,
}

impl Passwords {
    /// Enters the hashing queue.
    ///
    /// # Errors
    /// `TooMany` if the queue is full.
    pub(crate) fn join(&self, line: Line) -> Result<QueuePosition, ServerError> {
        self.queue.join(line)
    }

    /// Hashes a new password with its own salt, for the authenticated caller `name`.
    pub(crate) async fn hash(
        &self,
        name: &str,
        password: SecretText,
    ) -> Result<String, ServerError> {
        let position = self.join(Line::Reserved(name.to_owned()))?;
        // An authenticated request is completed even if its client disconnects.
        let permit = position.acquire(&CancellationToken::new()).await?;
        hash_blocking(permit, move || hash(&password)).await?
    }

    /// Verifies a password. Without a hash the result is false, after the same time.
    pub(crate) async fn verify(
        &self,
        permit: HashPermit,
        kept: Option<String>,
        password: SecretText,
    ) -> Result<bool, ServerError> {
        let decoy = Arc::clone(&self.decoy);
        let verify = move || {
            let known = kept.is_some();
            let kept = match kept {
                Some(kept) => kept,
                None => match decoy.get() {
                    Some(made) => made.clone(),
                    None => {
                        let made = hash(&SecretText::new("nobody has this one"))?;
                        decoy.get_or_init(|| made).clone()
                    }
                },
            };
            let parsed = PasswordHash::new(&kept)
                .map_err(|error| ServerError::Internal(format!("a stored password: {error}")))?;
            let fits = Argon2::default().verify_password(password.expose().as_bytes(), &parsed);
            Ok(fits.is_ok() && known)
        };
        hash_blocking(permit, verify).await?
    }
}

async fn hash_blocking<T: Send + 'static>(
    permit: HashPermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServerError> {
    let done = tokio::task::spawn_blocking(move || {
        // Held until the end of the work, even if the request is dropped.
        let _held = permit;
        work()
    });
    done.await.map_err(|_| ServerError::Stopping)
}

fn hash(password: &SecretText) -> Result<String, ServerError> {
    let mut salt = [0; 16];
    let filled = SysRng.try_fill_bytes(&mut salt);
    filled.map_err(|error| ServerError::Unavailable(format!("no random numbers: {error}")))?;
    let made = Argon2::default().hash_password_with_salt(password.expose().as_bytes(), &salt);
    let made: PasswordHash =
        made.map_err(|error| ServerError::Internal(format!("hashing a password: {error}")))?;
    Ok(made.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(text: &str) -> bool {
        check_password("password", &normalized(&SecretText::new(text))).is_ok()
    }

    #[test]
    fn the_password_policy_is_checked() {
        assert!(!is_good("Sh0rt-pass!"));
        assert!(is_good("Just-enough1"));
        assert!(!is_good("twelve chars"), "two classes only");
        assert!(is_good("twenty characters ok"));
        assert!(is_good(&"a".repeat(128)));
        assert!(!is_good(&"a".repeat(129)));
        // A ligature that normalizes to eighteen characters: the length counts afterwards.
        assert!(!is_good(&"\u{fdfa}".repeat(8)));
    }

    #[test]
    fn the_same_letters_in_another_spelling_are_the_same() {
        let composed = normalized(&SecretText::new("\u{e9}t\u{e9}"));
        let decomposed = normalized(&SecretText::new("e\u{301}te\u{301}"));
        assert_eq!(composed, decomposed);
    }

    #[tokio::test]
    async fn only_the_right_password_fits() {
        let passwords = Passwords::default();
        let kept = passwords.hash("ada", SecretText::new("Correct-horse1")).await.unwrap();
        assert!(kept.starts_with("$argon2id$"), "{kept}");
        let verify = async |kept: Option<&String>, text: &str| {
            let position = passwords.join(Line::Open("192.0.2.1".to_owned())).unwrap();
            let permit = position.acquire(&CancellationToken::new()).await.unwrap();
            passwords.verify(permit, kept.cloned(), SecretText::new(text)).await.unwrap()
        };
        assert!(verify(Some(&kept), "Correct-horse1").await);
        assert!(!verify(Some(&kept), "correct-horse1").await);
        assert!(!verify(None, "nobody has this one").await);
    }
}
