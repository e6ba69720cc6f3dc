//! The caller of a request, and its rights.

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use orrery_api::{Granted, RoleName};
use orrery_model::{Timestamp, TokenId};
use orrery_store::{EnvironmentRecord, Identity, RoleScope, TokenRecord};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::access::{Access, Right, group_of, required_for_post};
use crate::error::ServerError;

/// Scope of a right.
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
            RoleScope::Project(id) => Scope::Project(id.uuid()),
            RoleScope::Environment(id) => Scope::Environment(id.uuid()),
        }
    }
}

/// Returns the scope that a request names: an environment, a project, or everything.
pub(crate) fn scope_of(
    project: Option<Uuid>,
    environment: Option<Uuid>,
) -> Result<RoleScope, ServerError> {
    match (project, environment) {
        (None, None) => Ok(RoleScope::Everywhere),
        (Some(id), None) => Ok(RoleScope::Project(id.into())),
        (None, Some(id)) => Ok(RoleScope::Environment(id.into())),
        (Some(_), Some(_)) => {
            Err(ServerError::field("environment", "give a project or an environment, not both"))
        }
    }
}

/// Returns the right of a role.
pub(crate) fn role_right(role: &str) -> Option<Right> {
    role.parse::<RoleName>().ok().map(Right::from)
}

/// Converts a role in a scope to its API form.
pub(crate) fn granted(scope: Scope, role: RoleName) -> Granted {
    let (project, environment) = match scope {
        Scope::Everywhere => (None, None),
        Scope::Project(id) => (Some(id), None),
        Scope::Environment(id) => (None, Some(id)),
    };
    Granted { role, project, environment }
}

/// Authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// Anonymous.
    Nothing,
    Session {
        hash: [u8; 32],
        expires: Timestamp,
        cookie: bool,
    },
    Token,
    /// Token of an identity provider.
    Issuer,
}

/// Limits of a token, regardless of the rights of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenLimits {
    /// Id of the token.
    pub(crate) id: TokenId,
    pub(crate) scope: Scope,
    pub(crate) grants: TokenGrants,
    pub(crate) expires: Option<Timestamp>,
}

impl TokenLimits {
    /// Parses the stored limits of a token.
    pub(crate) fn from_record(token: &TokenRecord) -> Result<Self, serde_json::Error> {
        let grants = serde_json::from_value(token.grants.clone())?;
        Ok(TokenLimits {
            id: token.uuid,
            scope: token.scope.into(),
            grants,
            expires: token.expires,
        })
    }

    /// True if another token has no further rights, no wider scope and no later expiry.
    fn covers(&self, other: &TokenLimits) -> bool {
        let rights = role_right(&other.grants.role).zip(role_right(&self.grants.role));
        let within = |own: &Option<Vec<String>>, other: &Option<Vec<String>>| match (own, other) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => other.iter().all(|name| own.contains(name)),
        };
        let ends = match (self.expires, other.expires) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => other <= own,
        };
        (self.scope == Scope::Everywhere || self.scope == other.scope)
            && rights.is_some_and(|(other, own)| other <= own)
            && within(&self.grants.verbs, &other.grants.verbs)
            && within(&self.grants.groups, &other.grants.groups)
            && ends
    }
}

/// Limits in their stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenGrants {
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Name in the audit log: `user:ada`, `token:ci`.
    pub name: String,
    /// Account on this server, if there is one.
    pub account: Option<Uuid>,
    pub method: AuthMethod,
    grants: Vec<(Scope, Right)>,
    limit: Option<TokenLimits>,
}

impl Caller {
    pub(crate) fn anonymous() -> Self {
        let name = "anonymous".to_owned();
        Caller { name, account: None, method: AuthMethod::Nothing, grants: Vec::new(), limit: None }
    }

    /// Creates the caller for an account and its roles.
    pub(crate) fn for_account(name: String, identity: &Identity, method: AuthMethod) -> Self {
        let mut grants = Vec::with_capacity(identity.roles.len() + 1);
        if identity.account.admin {
            grants.push((Scope::Everywhere, Right::Administer));
        }
        for (scope, role) in &identity.roles {
            // An unknown role grants nothing.
            if let Some(right) = role_right(role) {
                grants.push(((*scope).into(), right));
            }
        }
        let account = Some(identity.account.uuid.uuid());
        Caller { name, account, method, grants, limit: None }
    }

    /// Creates a caller without an account, with rights from the claims of an identity provider.
    pub(crate) fn for_claims(name: String, grants: Vec<(Scope, Right)>) -> Self {
        Caller { name, account: None, method: AuthMethod::Issuer, grants, limit: None }
    }

    pub(crate) fn with_grants(mut self, more: Vec<(Scope, Right)>) -> Self {
        self.grants.extend(more);
        self
    }

    pub(crate) fn limited(self, limit: TokenLimits) -> Self {
        Caller { limit: Some(limit), ..self }
    }

    /// Returns the roles, restricted by the limits of the token.
    pub(crate) fn roles(&self) -> Vec<Granted> {
        let Some(TokenLimits { scope: limit, grants, .. }) = &self.limit else {
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
            // The project of the environment is unknown here; each request is checked with it.
            (Scope::Project(_), Scope::Environment(_)) => Some(*limit),
            (Scope::Environment(_), Scope::Project(_)) => Some(scope),
            (scope, limit) => (scope == limit).then_some(scope),
        };
        self.grants
            .iter()
            .filter_map(|(scope, right)| Some(granted(within(*scope)?, (*right).min(most).role())))
            .collect()
    }

    /// True if the caller may POST to a path in an environment. Responses offer only such actions.
    pub(crate) fn may_post(&self, environment: &EnvironmentRecord, path: &str) -> bool {
        let Some((route, access)) = required_for_post(path) else { return false };
        self.need_route(&Method::POST, route).is_ok()
            && match access {
                Access::Public | Access::Authenticated => true,
                Access::Somewhere(right) => self.may_somewhere(right),
                Access::Server(right) => self.may_everywhere(right),
                Access::Project(right) | Access::Cluster(right) => {
                    self.may_in_project(right, &environment.project.uuid())
                }
                Access::Environment(right) | Access::Header(right) => {
                    self.may_in_environment(right, environment)
                }
            }
    }

    /// Fails if the token excludes this method or group of routes.
    pub(crate) fn need_route(&self, method: &Method, route: &str) -> Result<(), ServerError> {
        let Some(TokenLimits { grants: TokenGrants { verbs, groups, .. }, .. }) = &self.limit
        else {
            return Ok(());
        };
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        if verbs.as_ref().is_some_and(|verbs| !verbs.iter().any(|verb| verb == method)) {
            return Err(beyond_token(method, "verbs", verbs.as_deref()));
        }
        let group = group_of(route);
        if groups.as_ref().is_some_and(|groups| !groups.iter().any(|name| name == group)) {
            return Err(beyond_token(group, "groups", groups.as_deref()));
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

    /// True if the caller has the right in any scope.
    pub(crate) fn may_somewhere(&self, right: Right) -> bool {
        self.roles().iter().any(|held| Right::from(held.role) >= right)
    }

    pub(crate) fn need_somewhere(&self, right: Right) -> Result<(), ServerError> {
        self.check(self.may_somewhere(right), right, "in some environment")
    }

    /// True if the caller may see and revoke a token of its account: a token reaches only tokens
    /// with no further rights and no later expiry.
    pub(crate) fn covers_token(&self, token: &TokenRecord) -> bool {
        let Some(limit) = &self.limit else { return true };
        TokenLimits::from_record(token).is_ok_and(|other| limit.covers(&other))
    }

    /// Returns the limits of the caller's token. Sessions and tokens created with it end with it.
    pub(crate) fn token(&self) -> Option<&TokenLimits> {
        self.limit.as_ref()
    }

    /// Fails for a token that does not list this group explicitly.
    pub(crate) fn need_named_group(&self, group: &str) -> Result<(), ServerError> {
        let Some(limit) = &self.limit else { return Ok(()) };
        if limit.grants.groups.iter().flatten().any(|name| name == group) {
            return Ok(());
        }
        Err(ServerError::Refused {
            code: "forbidden",
            detail: format!(
                "a token needs the group {group} for this: create one with it, or log in with a name \
                 and a password"
            ),
        })
    }

    pub(crate) fn may_everywhere(&self, right: Right) -> bool {
        self.has(right, |scope| *scope == Scope::Everywhere)
    }

    pub fn need_everywhere(&self, right: Right) -> Result<(), ServerError> {
        self.check(self.may_everywhere(right), right, "everywhere")
    }

    pub fn need_in_project(&self, right: Right, project: &Uuid) -> Result<(), ServerError> {
        self.check(self.may_in_project(right, project), right, "in this project")
    }

    pub(crate) fn need_in_environment(
        &self,
        right: Right,
        environment: &EnvironmentRecord,
    ) -> Result<(), ServerError> {
        self.check(self.may_in_environment(right, environment), right, "in this environment")
    }

    pub fn may_in_project(&self, right: Right, project: &Uuid) -> bool {
        self.has(right, |scope| match scope {
            Scope::Everywhere => true,
            Scope::Project(id) => id == project,
            Scope::Environment(_) => false,
        })
    }

    pub fn may_in_environment(&self, right: Right, environment: &EnvironmentRecord) -> bool {
        self.has(right, |scope| match scope {
            Scope::Everywhere => true,
            Scope::Project(id) => *id == environment.project.uuid(),
            Scope::Environment(id) => *id == environment.uuid.uuid(),
        })
    }

    /// Returns the account; fails without one.
    pub fn need_account(&self) -> Result<Uuid, ServerError> {
        let needed = || ServerError::Forbidden("use an account of this server".to_owned());
        self.account.ok_or_else(needed)
    }

    /// Fails for tokens: what they create could outlive or exceed them.
    pub fn need_interactive_login(&self) -> Result<(), ServerError> {
        match self.method {
            AuthMethod::Token => Err(ServerError::Refused {
                code: "forbidden",
                detail: "a token cannot do this: log in with a name and a password".to_owned(),
            }),
            AuthMethod::Nothing | AuthMethod::Session { .. } | AuthMethod::Issuer => Ok(()),
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

/// Error for a request outside of the limits of its token.
fn beyond_token(needed: &str, limits: &str, granted: Option<&[String]>) -> ServerError {
    let granted = granted.unwrap_or_default().join(", ");
    let detail = format!(
        "this needs the right to use {needed}, which the token lacks: its {limits} are {granted}"
    );
    ServerError::rule("token-limit", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(
        scope: Scope,
        role: &str,
        verbs: Option<&[&str]>,
        groups: Option<&[&str]>,
        expires: Option<i64>,
    ) -> TokenLimits {
        let list = |names: Option<&[&str]>| {
            names.map(|names| names.iter().map(|name| (*name).to_owned()).collect())
        };
        let grants =
            TokenGrants { role: role.to_owned(), verbs: list(verbs), groups: list(groups) };
        TokenLimits {
            id: orrery_model::Id::from_bytes([0; 16]),
            scope,
            grants,
            expires: expires.map(Timestamp),
        }
    }

    /// For all pairs of tokens: one covers another exactly if it permits every request that the
    /// other permits, at any time.
    #[test]
    fn a_token_reaches_only_tokens_that_can_do_no_more() {
        let scopes =
            [Scope::Everywhere, Scope::Project(Uuid::nil()), Scope::Environment(Uuid::nil())];
        let verbs: [Option<&[&str]>; 3] = [None, Some(&["GET"]), Some(&["GET", "POST"])];
        let groups: [Option<&[&str]>; 4] =
            [None, Some(&["tokens"]), Some(&["tokens", "users"]), Some(&[])];
        let mut all = Vec::new();
        for scope in scopes {
            for role in ["viewer", "admin"] {
                for verbs in verbs {
                    for groups in groups {
                        for expires in [None, Some(10), Some(20)] {
                            all.push(limit(scope, role, verbs, groups, expires));
                        }
                    }
                }
            }
        }
        // Permitted requests: scope, right, verb, group, time.
        let mut requests = Vec::new();
        for place in 0..3 {
            for right in [Right::View, Right::Administer] {
                for verb in ["GET", "POST", "DELETE"] {
                    for group in ["tokens", "users", "versions"] {
                        for time in [5, 15, 25] {
                            requests.push((place, right, verb, group, Timestamp(time)));
                        }
                    }
                }
            }
        }
        let admits = |limit: &TokenLimits, request: &(usize, Right, &str, &str, Timestamp)| {
            let (place, right, verb, group, time) = *request;
            let named = |names: &Option<Vec<String>>, name: &str| {
                names.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
            };
            (limit.scope == Scope::Everywhere || limit.scope == scopes[place])
                && role_right(&limit.grants.role).is_some_and(|most| most >= right)
                && named(&limit.grants.verbs, verb)
                && named(&limit.grants.groups, group)
                && limit.expires.is_none_or(|expires| time < expires)
        };
        let admitted: Vec<Vec<bool>> = all
            .iter()
            .map(|limit| requests.iter().map(|request| admits(limit, request)).collect())
            .collect();
        let mut reached = 0;
        for (own, may) in all.iter().zip(&admitted) {
            for (other, might) in all.iter().zip(&admitted) {
                if own.covers(other) {
                    reached += 1;
                    let exceeds = may.iter().zip(might).any(|(may, might)| *might && !*may);
                    assert!(!exceeds, "{own:?} reaches {other:?}");
                }
            }
            assert!(own.covers(own), "{own:?} does not reach itself");
        }
        assert!(reached > all.len(), "{reached}");
    }
}
