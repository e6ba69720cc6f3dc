//! Encoding of values in columns: enumerations as small integers, digests as blobs, requirements as
//! packed numbers.
//!
//! The numbers are stored in files that outlive this program: never change or reuse one.

use orrery_model::{
    AttributeHash, Blocked, ChangeKind, LastRunStatus, OutcomeStatus, ResourceFlags, ResourceState,
    Timestamp, VersionNumber,
};

use crate::sql::{Row, RowExt as _};
use crate::{
    ActionKind, ClusterOperationPhase, ClusterPhase, ConnectionPhase, ParameterSource, ResourceKey,
    Result, StoreError,
};

/// An enumeration that is stored as a number.
pub(crate) trait Code: Copy + 'static {
    /// Each value with its number.
    const CODES: &'static [(Self, i64)];
    const KIND: &'static str;
    fn code(self) -> i64;

    fn from_code(code: i64) -> Result<Self> {
        let found = Self::CODES.iter().find(|(_, number)| *number == code);
        found.map(|(value, _)| *value).ok_or_else(|| {
            StoreError::Unreadable(format!("{code} is not a known {kind}", kind = Self::KIND))
        })
    }
}

macro_rules! codes {
    ($type:ident, $kind:literal, $($variant:ident = $code:literal),+ $(,)?) => {
        impl Code for $type {
            const CODES: &'static [(Self, i64)] = &[$(($type::$variant, $code)),+];
            const KIND: &'static str = $kind;
            fn code(self) -> i64 {
                match self { $($type::$variant => $code),+ }
            }
        }
    };
}

codes!(Blocked, "kind of blocking", NotBlocked = 0, Blocked = 1, TemporarilyBlocked = 2);
codes!(LastRunStatus, "handler run", New = 0, Successful = 1, Failed = 2, Skipped = 3);
codes!(
    OutcomeStatus,
    "outcome",
    Deployed = 1,
    Failed = 2,
    Skipped = 3,
    SkippedForDependency = 4,
    Unavailable = 5,
    NonCompliant = 6,
);
codes!(ChangeKind, "change", NoChange = 0, Created = 1, Updated = 2, Purged = 3);
codes!(ActionKind, "kind of action", Deploy = 1, DryRun = 2, GetFacts = 3, Other = 4);
codes!(ParameterSource, "source of a parameter", Fact = 1, Plugin = 2, User = 3, Report = 4);
codes!(
    ClusterPhase,
    "status of a cluster",
    Pending = 1,
    Active = 2,
    Degraded = 3,
    Incomplete = 4,
    Inconsistent = 5,
    Terminated = 6,
);
codes!(
    ClusterOperationPhase,
    "state of an operation",
    Running = 1,
    Paused = 2,
    Done = 3,
    Failed = 4,
    Aborted = 5,
);

codes!(
    ConnectionPhase,
    "state of a connection",
    Connected = 1,
    Unresponsive = 2,
    Idle = 3,
    BackingOff = 4,
    CircuitOpen = 5,
);

/// Values of `state.origin`.
pub(crate) const ORIGIN_REMOVED: i64 = 0;
pub(crate) const ORIGIN_ADOPTED: i64 = 1;
pub(crate) const ORIGIN_CREATED: i64 = 2;

const UNDEFINED: i64 = 1;
const SEND_EVENT: i64 = 2;
const IGNORE_EVENTS: i64 = 4;
const REPORT_ONLY: i64 = 8;
pub(crate) const REMOVAL: i64 = 16;

/// Code of the flags. The default, which almost every resource has, is 0.
pub(crate) fn flags_code(flags: ResourceFlags) -> i64 {
    let ResourceFlags { undefined, send_event, receive_events, report_only, removal } = flags;
    i64::from(undefined) * UNDEFINED
        + i64::from(send_event) * SEND_EVENT
        + i64::from(!receive_events) * IGNORE_EVENTS
        + i64::from(report_only) * REPORT_ONLY
        + i64::from(removal) * REMOVAL
}

pub(crate) fn flags_from_code(code: i64) -> ResourceFlags {
    ResourceFlags {
        undefined: code & UNDEFINED != 0,
        send_event: code & SEND_EVENT != 0,
        receive_events: code & IGNORE_EVENTS == 0,
        report_only: code & REPORT_ONLY != 0,
        removal: code & REMOVAL != 0,
    }
}

pub(crate) fn hash_from(bytes: Option<&[u8]>) -> Result<AttributeHash> {
    optional_hash_from(bytes)?
        .ok_or_else(|| StoreError::Unreadable("a digest is missing".to_owned()))
}

pub(crate) fn optional_hash_from(bytes: Option<&[u8]>) -> Result<Option<AttributeHash>> {
    let Some(bytes) = bytes else { return Ok(None) };
    bytes
        .try_into()
        .map(|bytes| Some(AttributeHash(bytes)))
        .map_err(|_| StoreError::Unreadable(format!("a digest of {} bytes", bytes.len())))
}

pub(crate) fn version_number_from(code: i64) -> Result<VersionNumber> {
    unsigned(code).map(VersionNumber)
}

pub(crate) fn unsigned<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| StoreError::Unreadable(format!("{number} is out of its range")))
}

/// SQL that replaces a stored state. A resource without an intent keeps the outcome of its last
/// run, because its removal depends on it.
pub(crate) fn upsert_state_sql() -> String {
    let plain = ["intent", "undefined", "blocked", "last_produced_events", "attempts", "parked"];
    let of_runs = [
        "last_run",
        "last_run_compliant",
        "last_outcome",
        "last_run_at",
        "last_deployed",
        "last_success",
    ];
    let plain = plain.iter().map(|name| format!("{name} = excluded.{name}"));
    let of_runs = of_runs.iter().map(|name| {
        format!(
            "{name} = CASE WHEN excluded.intent IS NULL AND excluded.last_outcome IS NULL \
             THEN state.{name} ELSE excluded.{name} END"
        )
    });
    let all: Vec<String> = plain.chain(of_runs).collect();
    format!("ON CONFLICT (resource) DO UPDATE SET {}", all.join(", "))
}

/// Appends keys as variable-length integers: seven bits a byte, lowest first; the top bit marks
/// continuation.
pub(crate) fn pack_keys(keys: impl IntoIterator<Item = i64>, packed: &mut Vec<u8>) {
    packed.clear();
    for key in keys {
        let mut rest = key.unsigned_abs();
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            packed.push(low | if rest == 0 { 0 } else { 0x80 });
            if rest == 0 {
                break;
            }
        }
    }
}

pub(crate) fn unpack_keys(packed: Option<&[u8]>, keys: &mut Vec<ResourceKey>) -> Result<()> {
    keys.clear();
    let Some(packed) = packed else { return Ok(()) };
    let (mut key, mut shift) = (0_i64, 0);
    for byte in packed {
        if shift > 56 {
            return Err(StoreError::Unreadable("a requirement is too large".to_owned()));
        }
        key |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            keys.push(ResourceKey(key));
            (key, shift) = (0, 0);
        } else {
            shift += 7;
        }
    }
    if shift == 0 {
        Ok(())
    } else {
        Err(StoreError::Unreadable("requirements end early".to_owned()))
    }
}

/// Columns of `state` in the order in which [`state_from`] reads them.
pub(crate) const STATE_COLUMNS: &str = "state.intent, state.undefined, state.blocked, state.last_run, \
     state.last_run_compliant, state.last_outcome, state.last_run_at, state.last_deployed, \
     state.last_success, state.last_produced_events, state.attempts, state.parked";
pub(crate) const STATE_COLUMN_COUNT: usize = 12;

/// Reads a state from the columns that begin at `at`.
pub(crate) fn state_from(
    row: &(impl Row + ?Sized),
    at: usize,
    deploying: bool,
) -> Result<ResourceState> {
    let time = |column: usize| -> Result<Option<Timestamp>> {
        Ok(row.integer(at + column)?.map(Timestamp))
    };
    let outcome = row.integer(at + 5)?;
    Ok(ResourceState {
        intent: optional_hash_from(row.blob(at)?)?,
        undefined: row.flag(at + 1)?,
        blocked: Blocked::from_code(row.int(at + 2)?)?,
        deploying,
        last_run: LastRunStatus::from_code(row.int(at + 3)?)?,
        last_run_compliant: row.integer(at + 4)?.map(|compliant| compliant != 0),
        last_outcome: outcome.map(OutcomeStatus::from_code).transpose()?,
        last_run_at: time(6)?,
        last_deployed: optional_hash_from(row.blob(at + 7)?)?,
        last_success: time(8)?,
        last_produced_events: time(9)?,
        attempts: unsigned(row.int(at + 10)?)?,
        parked: row.flag(at + 11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Code + PartialEq + std::fmt::Debug>() {
        for (value, code) in T::CODES {
            assert_eq!(value.code(), *code);
            assert_eq!(T::from_code(*code).unwrap(), *value);
        }
        assert!(T::from_code(99).unwrap_err().to_string().contains("99 is not a known"));
    }

    #[test]
    fn enumerations_round_trip_through_their_numbers() {
        round_trip::<Blocked>();
        round_trip::<LastRunStatus>();
        round_trip::<OutcomeStatus>();
        round_trip::<ChangeKind>();
        round_trip::<ActionKind>();
        round_trip::<ParameterSource>();
        for code in 0..32 {
            assert_eq!(flags_code(flags_from_code(code)), code);
        }
        assert_eq!(flags_code(ResourceFlags::default()), 0);
    }

    #[test]
    fn keys_round_trip_through_their_packing() {
        let keys = [1, 127, 128, 300, 16_384, i64::from(u32::MAX), 1 << 50];
        let (mut packed, mut unpacked) = (Vec::new(), Vec::new());
        pack_keys(keys, &mut packed);
        unpack_keys(Some(&packed), &mut unpacked).unwrap();
        assert_eq!(unpacked, keys.map(ResourceKey));
        assert!(unpack_keys(Some(&[0x80]), &mut unpacked).is_err());
        assert!(unpack_keys(Some(&[0xff; 12]), &mut unpacked).is_err());
        unpack_keys(None, &mut unpacked).unwrap();
        assert!(unpacked.is_empty());
    }
}
