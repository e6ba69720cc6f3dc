//! Iteration over paginated lists.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;

use super::{Client, ClientError, query};
use crate::Page;

/// Page size. The maximum that the server allows.
const LIMIT: u32 = 1000;

/// Items of a list. The first error ends the iteration.
#[derive(Debug)]
pub struct Pages<'c, T> {
    client: &'c Client,
    path: String,
    /// Absent for lists without a `limit` parameter.
    limit: Option<u32>,
    read: VecDeque<T>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    After(String),
    Nothing,
}

impl<'c, T: DeserializeOwned> Pages<'c, T> {
    pub(super) fn new(client: &'c Client, path: &str) -> Self {
        Pages {
            client,
            path: path.to_owned(),
            limit: None,
            read: VecDeque::new(),
            next: Next::First,
        }
    }

    /// Requests pages of the maximum size. Only for lists with a `limit` parameter.
    #[must_use]
    pub fn large(mut self) -> Self {
        self.limit = Some(LIMIT);
        self
    }

    /// Starts after the cursor of an earlier page.
    #[must_use]
    pub fn after(mut self, place: Option<String>) -> Self {
        if let Some(place) = place {
            self.next = Next::After(place);
        }
        self
    }

    fn read_page(&mut self) -> Result<(), ClientError> {
        let limit = self.limit.map(|limit| limit.to_string());
        let after = match &self.next {
            Next::First => None,
            Next::After(place) => Some(place.as_str()),
            Next::Nothing => return Ok(()),
        };
        let path = query(&self.path, &[("limit", limit.as_deref()), ("after", after)]);
        let page: Page<T> = self.client.get(&path)?;
        self.next = page.next.map_or(Next::Nothing, Next::After);
        self.read = page.items.into();
        Ok(())
    }
}

impl<T: DeserializeOwned> Iterator for Pages<'_, T> {
    type Item = Result<T, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.read.pop_front() {
                return Some(Ok(item));
            }
            if matches!(self.next, Next::Nothing) {
                return None;
            }
            if let Err(error) = self.read_page() {
                self.next = Next::Nothing;
                return Some(Err(error));
            }
        }
    }
}
