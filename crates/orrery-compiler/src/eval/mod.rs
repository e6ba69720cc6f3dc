//! The evaluator, a dataflow machine. Every variable and attribute is a *cell*; every statement,
//! and every expression that needs its own step, is a *unit* that waits for cells or for results of
//! other units. Ready units run from one FIFO queue. The order in which units are created, wait and
//! run is part of the language: output, relation order and freezing follow from it.
//!
//! Start from `Evaluator::run` in `schedule`; `build_units` creates units, `run_units` runs them.

mod attribute_access;
mod bind;
mod build_units;
mod call;
mod call_batching;
mod cells;
mod construct;
mod context;
mod explain;
mod expr;
mod field_rules;
mod finish;
mod gradual;
mod graph;
mod incomplete;
mod index;
mod limits;
mod run_units;
mod schedule;
mod undefined_names;
mod validate;

use std::collections::{BTreeMap, VecDeque};

use orrery_model::FieldRule;
use orrery_syntax::Symbol;
use orrery_syntax::ast::Loc;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::error::{CompileError, Result};
use crate::host::Host;
use crate::ir::{ExprId, StmtId};
use crate::plugins::{Facts, PathKind, PluginResult, ResourceIdentity, ServerEnvironmentInfo};
use crate::program::{AttributeId, EntityId, Program};
use crate::project::{CompileLimits, TemplateMode};
use crate::render::{Instances, Renderer};
use crate::value::{Heap, InstanceId, ListId, Value};

pub(crate) use graph::Graph;

pub(crate) const NONE: u32 = u32::MAX;

/// Frames: an instance's frame is its number with this bit set and holds no variables of its own.
const INSTANCE_FRAME: u32 = 1 << 31;
/// The frame of top-level code: its variables have fixed cells.
const FILE_FRAME: u32 = NONE;

/// Origin of a value or unit: a statement, or an expression (a constructor, a call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Stmt(StmtId),
    Expr(ExprId),
}

const READY: u8 = 1;
/// An optional relation frozen without a value.
const EMPTY: u8 = 2;
/// The cell is in the wait queue or the zero list.
const QUEUED: u8 = 4;
/// The cell is in the zero list.
const IN_ZERO: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellKind {
    Plain,
    /// A relation `[0:1]`
    Optional,
    /// Any other relation but `[1]`
    List,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    value: Value,
    /// Plain: first waiter. Otherwise: number of its `Delayed`, if any.
    head: u32,
    /// Plain: last waiter. Otherwise: position in the zero list.
    tail: u32,
    /// Encoded `Origin` of the value.
    origin: u32,
    kind: CellKind,
    flags: u8,
}

impl Cell {
    fn value(&self) -> Option<Value> {
        (self.flags & READY != 0 && self.flags & EMPTY == 0).then_some(self.value)
    }
}

/// State of a delayed cell, allocated on first use.
#[derive(Debug, Default)]
struct Delayed {
    values: SmallVec<[Value; 1]>,
    /// Set of members, once the list is long.
    members: FxHashSet<u64>,
    waiters: SmallVec<[u32; 4]>,
    /// Units that receive each value as it arrives.
    listeners: SmallVec<[u32; 4]>,
    /// Number of waiters that do not block.
    gradual: u32,
    promises: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    unit: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    parent: u32,
    cells: u32,
    /// Number of its names in the program.
    names: u32,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub entity: EntityId,
    /// First of its cells.
    pub cells: u32,
    /// The constructor that created it.
    pub constructor: ExprId,
    /// Bit set of implementations that have run, by position among those of the entity.
    implemented: u64,
    /// Creation depth: number of nested implementations.
    depth: u32,
    creator: u32,
}

/// Result of another unit that a unit reads.
#[derive(Clone, Copy, Debug)]
enum Temp {
    Pending,
    Value(Value),
    Cell(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    /// `x = e`
    Assign,
    /// An expression for its effects
    Discard,
    /// `a.b = e`, waiting for `a`
    ResolveTarget,
    /// The assignment itself
    SetAttr,
    /// Consecutive assignments of one constructor that wait for nothing
    SetReady,
    If,
    For,
    /// Acquires a promise for a block
    Promise,
    /// `a.b`: finds the cell
    Hop,
    Call,
    IndexLookup,
    ShortIndexLookup,
    /// `and`, `or`: left side, then right side
    LazyLeft,
    LazyRight,
    /// Condition, then the chosen side
    Condition,
    Branch,
    /// `a.b is defined`: the owner, then the cell
    Defined,
    DefinedCell,
    /// Comprehension: its list, one element, the whole
    Iterate,
    Element,
    Collect,
    /// One item of a list literal that is read gradually
    Item,
    /// The condition of an `implement`
    Implement,
    /// An annotation of a relation
    Annotation,
}

const REPORTED: u8 = 1;
const DONE: u8 = 2;
/// The first temp holds the whole of a list literal.
const LITERAL: u8 = 4;
/// Part of the value was not reported.
const MISSED: u8 = 8;

/// A step that waits to run.
#[derive(Clone, Copy, Debug)]
struct Unit {
    kind: Kind,
    flags: u8,
    waiting: u32,
    /// Order of creation.
    sequence: u32,
    frame: u32,
    /// Number of the statement, expression or implement that it runs.
    node: u32,
    /// First of its temps.
    temps: u32,
    temp_count: u32,
    /// Receiver of the result.
    dest: u32,
    dest_slot: u32,
    /// By kind: instance, comprehension, literal, owner.
    a: u32,
    /// By kind: slot, position.
    b: u32,
    /// Encoded `Origin` of the assignment.
    origin: u32,
    /// Encoded `Origin` of the assigned value: for a default, its declaration.
    set_by: u32,
    /// The unit that receives values as they arrive.
    collector: u32,
    /// Assignment target, for implicit inverses.
    owner: build_units::Owner,
}

/// Entry of the run queue.
#[derive(Clone, Copy, Debug)]
enum ReadyStep {
    /// A unit with complete dependencies.
    Unit(u32),
    /// `a.b` with an `a` that was known when it was emitted: the reader gets the cell at its turn.
    Read { dest: build_units::Dest, cell: u32 },
    /// `a.b.c`, likewise: the cell is that of `a.b`.
    Chain { chain: u32, cell: u32 },
}

/// The last hop of `a.b.c`, deferred until its turn.
#[derive(Clone, Copy, Debug)]
struct Chain {
    dest: build_units::Dest,
    expr: ExprId,
    frame: u32,
    sequence: u32,
}

/// State of a running comprehension.
#[derive(Debug)]
struct ComprehensionState {
    results: Vec<Value>,
    /// The `Collect` unit.
    collect: u32,
}

/// A list literal that is read gradually.
#[derive(Debug)]
struct Literal {
    values: Vec<Value>,
    pending: u32,
    dest: u32,
    dest_slot: u32,
    collector: u32,
}

/// A lookup that waits for an instance with a certain key.
#[derive(Debug)]
pub(crate) struct PendingLookup {
    dest: u32,
    dest_slot: u32,
    expr: ExprId,
    values: Vec<(u32, Value)>,
    /// Position among the entity's indexes.
    index: u32,
    entity: EntityId,
}

/// The outside world as plugins see it: files, environment variables, facts, time and randomness.
/// `ProjectSystem` implements it for a compile.
pub trait System {
    fn module_dir(&self, module: &str) -> Option<String>;
    fn project_dir(&self) -> String;
    fn read_text(&self, path: &str) -> std::result::Result<String, String>;
    fn file_kind(&self, path: &str) -> PathKind;
    fn list_dir(&self, path: &str) -> std::result::Result<Vec<String>, String>;
    fn write_text(&self, path: &str, text: &str) -> std::result::Result<(), String>;
    fn environment_variable(&self, name: &str) -> Option<String>;
    fn facts(&self) -> Option<&dyn Facts>;
    fn server(&self) -> Option<&ServerEnvironmentInfo>;
    /// The resource identity that an entity itself declares, if any.
    fn identity(&self, entity: &str) -> Option<&ResourceIdentity>;
    fn now(&self) -> f64;
    fn random_bytes(&self, count: usize) -> Vec<u8>;
    /// The field rules of a built-in entity.
    fn field_rules(&self, entity: &str) -> Vec<(&'static str, FieldRule)>;
    /// Treatment of undeclared attributes in templates.
    fn template_mode(&self) -> TemplateMode;
    /// The display form of a path.
    fn show_path(&self, path: &str) -> String;
}

pub struct Evaluator<'p> {
    pub program: &'p Program,
    pub heap: Heap,
    pub(crate) system: &'p dyn System,
    host: &'p dyn Host,
    cells: Vec<Cell>,
    /// Initial cells of a new instance, by entity.
    fresh: Vec<Box<[Cell]>>,
    delayed: Vec<Delayed>,
    waiters: Vec<Waiter>,
    free_waiters: u32,
    /// Relations with an annotation that evaluated to an unknown.
    unknown_annotations: Vec<u32>,
    units: Vec<Unit>,
    free_units: Vec<u32>,
    temps: Vec<Temp>,
    /// Free temps, by group size.
    free_temps: [Vec<u32>; 6],
    frames: Vec<Frame>,
    pub(crate) instances: Vec<Instance>,
    /// Further constructors that matched an existing instance.
    extra_constructors: FxHashMap<InstanceId, Vec<ExprId>>,
    comprehensions: Vec<ComprehensionState>,
    literals: Vec<Literal>,
    /// Promises held by a block, by its unit: their positions and cells.
    held: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Arguments of calls that wait for a cell.
    waiting_calls: FxHashMap<u32, call::Arguments>,
    /// Outcomes of batched calls, by unit.
    early: FxHashMap<u32, PluginResult>,
    /// Implementations that ran, for entities with more than 64.
    implemented_more: FxHashSet<(InstanceId, u32)>,
    indexes: index::Indexes,
    run: VecDeque<ReadyStep>,
    chains: Vec<Chain>,
    free_chains: Vec<u32>,
    wait: schedule::WaitQueue,
    zero: Vec<u32>,
    /// Cells of the zero list with new waiters.
    zero_woken: Vec<u32>,
    sequence: u32,
    iterations: u64,
    /// Number of units run, modulo 256.
    steps: u8,
    limits: CompileLimits,
    pub output: String,
    pub warnings: Vec<(&'static str, String, Option<Loc>)>,
    /// Typedefs that a string or a number has already passed.
    validated: FxHashSet<u64>,
    has_policy: bool,
    empty_list: ListId,
    self_symbol: Symbol,
    /// The `requires` relation and the origins of its members.
    requires: Option<AttributeId>,
    requirements: Vec<graph::Requirement>,
    /// Machines whose facts the model reads, with the first call.
    machines: BTreeMap<String, Loc>,
    /// Reusable text buffer.
    scratch: String,
}

impl<'p> Evaluator<'p> {
    pub fn new(
        program: &'p Program,
        heap: Heap,
        system: &'p dyn System,
        host: &'p dyn Host,
        limits: CompileLimits,
    ) -> Self {
        let has_policy = program
            .attributes
            .iter()
            .any(|a| a.relation.is_some_and(|end| end.held_back || end.precedence.is_some()));
        let mut heap = heap;
        heap.set_text_max(limits.text_bytes);
        let empty_list = heap.list_of(&[]);
        let mut evaluator = Evaluator {
            program,
            heap,
            system,
            host,
            cells: Vec::new(),
            fresh: cells::fresh_cells(program),
            delayed: Vec::new(),
            waiters: Vec::new(),
            free_waiters: NONE,
            unknown_annotations: Vec::new(),
            units: Vec::new(),
            free_units: Vec::new(),
            temps: Vec::new(),
            free_temps: Default::default(),
            frames: Vec::new(),
            instances: Vec::new(),
            extra_constructors: FxHashMap::default(),
            comprehensions: Vec::new(),
            literals: Vec::new(),
            held: FxHashMap::default(),
            waiting_calls: FxHashMap::default(),
            early: FxHashMap::default(),
            implemented_more: FxHashSet::default(),
            indexes: index::Indexes::new(program),
            run: VecDeque::new(),
            chains: Vec::new(),
            free_chains: Vec::new(),
            wait: schedule::WaitQueue::default(),
            zero: Vec::new(),
            zero_woken: Vec::new(),
            sequence: 0,
            iterations: 0,
            steps: 0,
            limits,
            output: String::new(),
            warnings: Vec::new(),
            validated: FxHashSet::default(),
            has_policy,
            empty_list,
            self_symbol: program.interner.get("self").unwrap_or(Symbol(u32::MAX)),
            requires: graph::requires_of(program),
            requirements: Vec::new(),
            machines: BTreeMap::new(),
            scratch: String::new(),
        };
        for _ in 0..program.globals {
            evaluator.new_cell(CellKind::Plain);
        }
        evaluator
    }

    pub fn renderer(&self) -> Renderer<'_> {
        Renderer { program: self.program, heap: &self.heap, instances: self }
    }

    pub fn repr(&self, value: Value) -> String {
        self.renderer().repr(value)
    }

    pub fn str(&self, value: Value) -> String {
        self.renderer().str(value)
    }

    pub fn text(&self, symbol: Symbol) -> &'p str {
        self.program.text(symbol)
    }

    /// The value of a cell, if set; `None` also for an empty optional relation.
    pub fn cell_value(&self, cell: u32) -> Option<Value> {
        self.cells[cell as usize].value()
    }

    /// Extracts the result of the run and drops the rest.
    pub(crate) fn into_graph(self) -> Graph {
        let Evaluator { heap, cells, instances, requires, requirements, machines, .. } = self;
        Graph { heap, cells, instances, requires, requirements, machines }
    }

    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    fn origin_loc(&self, origin: u32) -> Loc {
        match decode(origin) {
            Origin::Stmt(id) => self.program.stmt(id).loc,
            Origin::Expr(id) => self.program.expr(id).loc,
        }
    }

    fn origin_text(&self, origin: u32) -> String {
        match decode(origin) {
            Origin::Stmt(id) => self.renderer().stmt(id),
            Origin::Expr(id) => self.renderer().expr(id),
        }
    }

    /// Names the statement of an error that has none.
    fn blame(&self, error: Box<CompileError>, origin: u32) -> Box<CompileError> {
        error.or_in_statement(|| self.origin_text(origin), self.origin_loc(origin))
    }

    fn blame_expr(&self, error: Box<CompileError>, id: ExprId) -> Box<CompileError> {
        error.or_in_statement(|| self.renderer().expr(id), self.program.expr(id).loc)
    }

    /// Replaces the location of an error with an expression.
    fn replace_blame(&self, error: Box<CompileError>, id: ExprId) -> Box<CompileError> {
        error.replace_statement(&self.renderer().expr(id), self.program.expr(id).loc)
    }

    fn fail<T>(&self, class: &'static str, text: impl Into<String>) -> Result<T> {
        Err(CompileError::new(class, text))
    }
}

fn encode(origin: Origin) -> u32 {
    match origin {
        Origin::Stmt(id) => id.0 << 1,
        Origin::Expr(id) => id.0 << 1 | 1,
    }
}

fn decode(origin: u32) -> Origin {
    if origin & 1 == 0 {
        Origin::Stmt(StmtId(origin >> 1))
    } else {
        Origin::Expr(ExprId(origin >> 1))
    }
}

impl Instances for Evaluator<'_> {
    fn entity_name(&self, instance: InstanceId) -> String {
        let entity = self.instances[instance.index()].entity;
        self.text(self.program.entity(entity).name).to_owned()
    }

    fn description(&self, instance: InstanceId) -> String {
        let mut places = vec![self.instance_location(self.instances[instance.index()].constructor)];
        for &constructor in self.extra_constructors.get(&instance).into_iter().flatten() {
            places.push(self.instance_location(constructor));
        }
        format!("{} (instantiated at {})", self.entity_name(instance), places.join(","))
    }
}

impl Evaluator<'_> {
    fn instance_location(&self, constructor: ExprId) -> String {
        self.program.sources.line_location(self.program.expr(constructor).loc)
    }
}
