//! Somebody who is known for the length of a request, and their rights.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use orrery_api::Granted;
use orrery_model::Timestamp;
use orrery_store::{EnvironmentRecord, Identity, RoleScope};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::access::Right;
use crate::problem::ServerError;

/// Where somebody has a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everywhere,
    Project(Uuid),
    Environment(Uuid),
}

impl From<RoleScope> for Scope {
    fn from(scope: RoleScope) -> Self {
        match scope {
            RoleScope::Everywhere => Scope::Everywhere,
            RoleScope::Project(id) => Scope::Project(Uuid::from_bytes(id)),
            RoleScope::Environment(id) => Scope::Environment(Uuid::from_bytes(id)),
        }
    }
}

/// The place that a request names: an environment, a project, or everything.
pub(crate) fn scope_of(
    project: Option<Uuid>,
    environment: Option<Uuid>,
) -> Result<RoleScope, ServerError> {
    match (project, environment) {
        (None, None) => Ok(RoleScope::Everywhere),
        (Some(id), None) => Ok(RoleScope::Project(id.into_bytes())),
        (None, Some(id)) => Ok(RoleScope::Environment(id.into_bytes())),
        (Some(_), Some(_)) => {
            Err(ServerError::field("environment", "give a project or an environment, not both"))
        }
    }
}

/// The right behind the name of a role.
pub(crate) fn role_right(role: &str) -> Option<Right> {
    Right::ALL.into_iter().find(|right| right.role() == role)
}

/// A role in a place, as the API tells it.
pub(crate) fn granted(scope: Scope, role: impl Into<String>) -> Granted {
    let (project, environment) = match scope {
        Scope::Everywhere => (None, None),
        Scope::Project(id) => (Some(id), None),
        Scope::Environment(id) => (None, Some(id)),
    };
    Granted { role: role.into(), project, environment }
}

/// How somebody showed who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Not at all.
    Nothing,
    Session {
        hash: [u8; 32],
        expires: Timestamp,
        cookie: bool,
    },
    Token,
    /// By the word of an external issuer.
    Issuer,
}

/// What the holder of a token may not exceed, whatever its owner may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) scope: Scope,
    pub(crate) grants: TokenGrants,
}

/// As it is stored with a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenGrants {
    pub(crate) role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verbs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Vec<String>>,
}

/// Somebody who is known, for the length of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// For the audit log: `user:ada`, `token:ci`.
    pub(crate) name: String,
    /// The account behind it, if there is one here.
    pub(crate) account: Option<Uuid>,
    pub(crate) how: How,
    grants: Vec<(Scope, Right)>,
    limit: Option<Limit>,
}

impl Caller {
    pub(crate) fn nobody() -> Self {
        let name = "anonymous".to_owned();
        Caller { name, account: None, how: How::Nothing, grants: Vec::new(), limit: None }
    }

    /// An account with what its roles allow.
    pub(crate) fn known(name: String, identity: &Identity, how: How) -> Self {
        let mut grants = Vec::with_capacity(identity.roles.len() + 1);
        if identity.account.admin {
            grants.push((Scope::Everywhere, Right::Administer));
        }
        for (scope, role) in &identity.roles {
            // A role that this program does not know allows nothing.
            if let Some(right) = role_right(role) {
                grants.push(((*scope).into(), right));
            }
        }
        let account = Some(Uuid::from_bytes(identity.account.uuid));
        Caller { name, account, how, grants, limit: None }
    }

    /// Somebody without an account here, with what an issuer's claims give them.
    pub(crate) fn vouched(name: String, grants: Vec<(Scope, Right)>) -> Self {
        Caller { name, account: None, how: How::Issuer, grants, limit: None }
    }

    pub(crate) fn with_grants(mut self, more: Vec<(Scope, Right)>) -> Self {
        self.grants.extend(more);
        self
    }

    pub(crate) fn limited(self, limit: Limit) -> Self {
        Caller { limit: Some(limit), ..self }
    }

    /// The roles, as far as a token lets its holder use them.
    pub(crate) fn roles(&self) -> Vec<Granted> {
        let Some(Limit { scope: limit, grants }) = &self.limit else {
            return self
                .grants
                .iter()
                .map(|(scope, right)| granted(*scope, right.role()))
                .collect();
        };
        let Some(most) = role_right(&grants.role) else { return Vec::new() };
        let within = |scope: Scope| match (scope, *limit) {
            (scope, Scope::Everywhere) => Some(scope),
            (Scope::Everywhere, limit) => Some(limit),
            // Which project an environment belongs to is not known here; each request is checked with what is.
            (Scope::Project(_), Scope::Environment(_)) => Some(*limit),
            (Scope::Environment(_), Scope::Project(_)) => Some(scope),
            (scope, limit) => (scope == limit).then_some(scope),
        };
        self.grants
            .iter()
            .filter_map(|(scope, right)| Some(granted(within(*scope)?, (*right).min(most).role())))
            .collect()
    }

    /// Fails if a token is not for this method or this group of routes.
    pub(crate) fn need_route(&self, method: &Method, route: &str) -> Result<(), ServerError> {
        let Some(Limit { grants: TokenGrants { verbs, groups, .. }, .. }) = &self.limit else {
            return Ok(());
        };
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        if verbs.as_ref().is_some_and(|verbs| !verbs.iter().any(|verb| verb == method)) {
            return Err(ServerError::Forbidden(format!("use {method}, which the token lacks")));
        }
        let group = crate::access::group_of(route);
        if groups.as_ref().is_some_and(|groups| !groups.iter().any(|name| name == group)) {
            return Err(ServerError::Forbidden(format!("use {group}, which the token lacks")));
        }
        Ok(())
    }

    fn has(&self, right: Right, holds: impl Fn(&Scope) -> bool) -> bool {
        let within = self.limit.as_ref().is_none_or(|limit| {
            let most = role_right(&limit.grants.role);
            holds(&limit.scope) && most.is_some_and(|most| most >= right)
        });
        within && self.grants.iter().any(|(scope, granted)| *granted >= right && holds(scope))
    }

    /// Whether there is any place where the caller has a right.
    pub(crate) fn may_somewhere(&self, right: Right) -> bool {
        self.roles().iter().any(|held| role_right(&held.role).is_some_and(|held| held >= right))
    }

    pub(crate) fn need_somewhere(&self, right: Right) -> Result<(), ServerError> {
        self.check(self.may_somewhere(right), right, "in some environment")
    }

    /// Whether a token, with its scope and role, is within what the caller may know of. Who shows a token knows those that could do no more.
    pub(crate) fn covers_token(&self, scope: Scope, role: &str) -> bool {
        let Some(limit) = &self.limit else { return true };
        let is_within = limit.scope == Scope::Everywhere || limit.scope == scope;
        let rights = role_right(role).zip(role_right(&limit.grants.role));
        is_within && rights.is_some_and(|(other, own)| other <= own)
    }

    pub(crate) fn may_everywhere(&self, right: Right) -> bool {
        self.has(right, |scope| *scope == Scope::Everywhere)
    }

    pub(crate) fn need_everywhere(&self, right: Right) -> Result<(), ServerError> {
        self.check(self.may_everywhere(right), right, "everywhere")
    }

    pub(crate) fn need_in_project(&self, right: Right, project: &Uuid) -> Result<(), ServerError> {
        self.check(self.may_in_project(right, project), right, "in this project")
    }

    pub(crate) fn need_in_environment(
        &self,
        right: Right,
        environment: &EnvironmentRecord,
    ) -> Result<(), ServerError> {
        self.check(self.may_in_environment(right, environment), right, "in this environment")
    }

    pub(crate) fn may_in_project(&self, right: Right, project: &Uuid) -> bool {
        self.has(right, |scope| match scope {
            Scope::Everywhere => true,
            Scope::Project(id) => id == project,
            Scope::Environment(_) => false,
        })
    }

    pub(crate) fn may_in_environment(&self, right: Right, environment: &EnvironmentRecord) -> bool {
        self.has(right, |scope| match scope {
            Scope::Everywhere => true,
            Scope::Project(id) => id.as_bytes() == &environment.project,
            Scope::Environment(id) => id.as_bytes() == &environment.uuid,
        })
    }

    /// The account, for what only a person with an account may do.
    pub(crate) fn need_account(&self) -> Result<Uuid, ServerError> {
        let needed = || ServerError::Forbidden("use an account of this server".to_owned());
        self.account.ok_or_else(needed)
    }

    /// Fails for tokens: what they could make might outlive or exceed them.
    pub(crate) fn need_person(&self) -> Result<(), ServerError> {
        match self.how {
            How::Token => Err(ServerError::Refused {
                status: StatusCode::FORBIDDEN,
                code: "forbidden",
                detail: "a token cannot do this: log in with a name and a password".to_owned(),
            }),
            How::Nothing | How::Session { .. } | How::Issuer => Ok(()),
        }
    }

    fn check(&self, allowed: bool, right: Right, place: &str) -> Result<(), ServerError> {
        if allowed { Ok(()) } else { Err(self.forbidden(right, place)) }
    }

    pub(crate) fn forbidden(&self, right: Right, place: &str) -> ServerError {
        ServerError::Forbidden(format!("{} {place}", right.name()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        let known = parts.extensions.get::<Caller>().cloned();
        known.ok_or_else(|| ServerError::Internal("a route without a caller".to_owned()))
    }
}
