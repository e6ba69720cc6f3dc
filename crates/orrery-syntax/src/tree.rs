//! The lossless tree: flat arrays of tokens and nodes, no pointers.
//!
//! Nodes are in preorder and have the size of their subtree and the range of tokens they cover;
//! tokens have their start in the text. Nothing here recurses, so a tree of any depth can be walked
//! and dropped, and the whole is `Send`.

use std::ops::Range;

use crate::kind::SyntaxKind;
use crate::lexer::SyntaxToken;

/// Index of a node in its tree. The root is `NodeId(0)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Index of a token in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) kind: SyntaxKind,
    /// First token, which is never trivia unless the node is the root or empty.
    pub(crate) first: u32,
    /// One after the last token.
    pub(crate) end: u32,
    /// Number of nodes in the subtree, this one included.
    pub(crate) size: u32,
}

/// A child of a node: another node or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Node(NodeId),
    Token(TokenId),
}

/// The lossless tree of one text.
#[derive(Debug)]
pub struct Tree {
    text: Box<str>,
    tokens: Vec<SyntaxToken>,
    nodes: Vec<Node>,
}

impl Tree {
    /// Makes a tree from nodes in postorder, as the parser finishes them; the last one is the root.
    pub(crate) fn from_postorder(
        text: &str,
        tokens: Vec<SyntaxToken>,
        postorder: Vec<Node>,
    ) -> Tree {
        let count = postorder.len();
        let mut nodes = postorder.clone();
        // A node's index in preorder is its index in postorder, less its descendants (which come
        // before it there), plus its ancestors (which come after it there). Walking backwards meets
        // a parent before its children; `open` holds the starts of the ancestors' subtrees.
        let mut open: Vec<usize> = Vec::new();
        for (index, node) in postorder.iter().enumerate().rev() {
            while open.last().is_some_and(|begin| index < *begin) {
                open.pop();
            }
            let begin = index + 1 - node.size as usize;
            nodes[begin + open.len()] = *node;
            open.push(begin);
        }
        debug_assert_eq!(nodes.first().map(|root| root.size as usize), Some(count));
        Tree { text: text.into(), tokens, nodes }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    pub fn tokens(&self) -> &[SyntaxToken] {
        &self.tokens
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub fn kind(&self, node: NodeId) -> SyntaxKind {
        self.nodes[node.0 as usize].kind
    }

    /// The tokens that a node covers, trivia between them included.
    pub fn token_range(&self, node: NodeId) -> Range<usize> {
        let node = &self.nodes[node.0 as usize];
        node.first as usize..node.end as usize
    }

    /// Bytes from the start of the node's first token to the end of its last.
    pub fn range(&self, node: NodeId) -> Range<usize> {
        let tokens = self.token_range(node);
        let start = self.token_start(tokens.start);
        start..self.token_start(tokens.end).max(start)
    }

    fn token_start(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(self.text.len(), |token| token.start as usize)
    }

    pub fn token_kind(&self, token: TokenId) -> SyntaxKind {
        self.tokens[token.0 as usize].kind
    }

    pub fn token_bytes(&self, token: TokenId) -> Range<usize> {
        let index = token.0 as usize;
        self.token_start(index)..self.token_start(index + 1)
    }

    pub fn token_text(&self, token: TokenId) -> &str {
        &self.text[self.token_bytes(token)]
    }

    /// The direct child nodes, in order.
    pub fn children(&self, node: NodeId) -> Children<'_> {
        let end = node.0 + self.nodes[node.0 as usize].size;
        Children { tree: self, next: node.0 + 1, end }
    }

    /// The direct children, nodes and tokens, in order, without trivia.
    pub fn elements(&self, node: NodeId) -> Elements<'_> {
        let this = &self.nodes[node.0 as usize];
        Elements {
            tree: self,
            token: this.first,
            token_end: this.end,
            children: self.children(node),
        }
    }
}

/// See [`Tree::children`].
#[derive(Clone, Debug)]
pub struct Children<'t> {
    tree: &'t Tree,
    next: u32,
    end: u32,
}

impl Children<'_> {
    fn peek(&self) -> Option<(NodeId, &Node)> {
        (self.next < self.end).then(|| (NodeId(self.next), &self.tree.nodes[self.next as usize]))
    }
}

impl Iterator for Children<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        let (id, node) = self.peek()?;
        self.next += node.size;
        Some(id)
    }
}

/// See [`Tree::elements`].
#[derive(Clone, Debug)]
pub struct Elements<'t> {
    tree: &'t Tree,
    token: u32,
    token_end: u32,
    children: Children<'t>,
}

impl Iterator for Elements<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        loop {
            if let Some((id, node)) = self.children.peek()
                && node.first <= self.token
            {
                self.token = self.token.max(node.end);
                self.children.next();
                return Some(Element::Node(id));
            }
            if self.token >= self.token_end {
                return None;
            }
            let token = self.token;
            self.token += 1;
            if !self.tree.tokens[token as usize].kind.is_trivia() {
                return Some(Element::Token(TokenId(token)));
            }
        }
    }
}
