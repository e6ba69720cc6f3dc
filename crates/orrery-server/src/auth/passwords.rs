//! Passwords: which are good enough, and hashing them without stopping anybody else.

use std::sync::{Arc, OnceLock};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use orrery_model::SecretText;
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio_util::sync::CancellationToken;
use unicode_normalization::UnicodeNormalization as _;

use crate::auth::turns::{Line, Place, Turn, Turns};
use crate::problem::ServerError;

const LENGTH_MIN: usize = 12;
const LENGTH_MAX: usize = 128;
/// From this length on, any characters will do.
const LENGTH_LONG: usize = 20;
const CLASSES_MIN: usize = 3;

/// One spelling for texts that look the same, however a keyboard composes them.
pub(crate) fn normalized(password: &SecretText) -> SecretText {
    // A character can become many; nobody needs the rest of what is far too long.
    let characters = password.expose().nfkc().take(8 * LENGTH_MAX);
    SecretText::new(characters.collect::<String>())
}

/// Fails if a new password is not good enough.
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
            "must have {CLASSES_MIN} of: small letters, capital letters, digits, other characters; or {LENGTH_LONG} characters of any kind"
        );
        return Err(ServerError::field(field, reason));
    }
    Ok(())
}

/// Hashes passwords on threads that may block, a few at a time and fairly.
#[derive(Debug, Default)]
pub(crate) struct Passwords {
    turns: Turns,
    /// What passwords for unknown users are compared with, so that it takes as long as for known ones.
    decoy: Arc<OnceLock<String>>,
}

impl Passwords {
    /// Takes a place among the requests that wait for their turn.
    ///
    /// # Errors
    /// `TooMany` if too many wait.
    pub(crate) fn enter(&self, line: Line) -> Result<Place, ServerError> {
        self.turns.enter(line)
    }

    /// Hashes a password to keep, with a salt of its own, for a caller that is known by `name`.
    pub(crate) async fn hash(
        &self,
        name: &str,
        password: SecretText,
    ) -> Result<String, ServerError> {
        let place = self.enter(Line::Reserved(name.to_owned()))?;
        // What a known caller asked for is done also if it hangs up.
        let turn = place.turn(&CancellationToken::new()).await?;
        in_turn(turn, move || hash(&password)).await?
    }

    /// Whether it is the password behind a hash. Without a hash the answer is no, and takes as long.
    pub(crate) async fn verify(
        &self,
        turn: Turn,
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
                .map_err(|error| ServerError::Internal(format!("a kept password: {error}")))?;
            let fits = Argon2::default().verify_password(password.expose().as_bytes(), &parsed);
            Ok(fits.is_ok() && known)
        };
        in_turn(turn, verify).await?
    }
}

async fn in_turn<T: Send + 'static>(
    turn: Turn,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServerError> {
    let done = tokio::task::spawn_blocking(move || {
        // Held until the work is done, even if its request is gone.
        let _held = turn;
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
    fn what_makes_a_password_good() {
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
            let place = passwords.enter(Line::Open("192.0.2.1".to_owned())).unwrap();
            let turn = place.turn(&CancellationToken::new()).await.unwrap();
            passwords.verify(turn, kept.cloned(), SecretText::new(text)).await.unwrap()
        };
        assert!(verify(Some(&kept), "Correct-horse1").await);
        assert!(!verify(Some(&kept), "correct-horse1").await);
        assert!(!verify(None, "nobody has this one").await);
    }
}
