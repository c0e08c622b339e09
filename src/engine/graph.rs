//! From the plan to operators: the graph that a step runs through.
//!
//! Nodes stand in topological order: sources first, then the queries in the configuration's order, each query's tree
//! from the leaves up, inputs left to right. A node's inputs therefore stand before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, new_empty_array};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::source_node::SourceNode;
use crate::config::{Config, SYSTEM_COLUMNS, Source, Stream};
use crate::expr::build::Expr;
use crate::expr::{EvalContext, Field, Schema};
use crate::operator::expand::Expand;
use crate::operator::filter::Filter;
use crate::operator::first_row::{self, FirstRow};
use crate::operator::interval_join::{self, IntervalJoin};
use crate::operator::join::{Condition, Side};
use crate::operator::last_row::{self, LastRow};
use crate::operator::lookup_join::{self, LookupJoin};
use crate::operator::match_recognize::{self, MatchRecognize};
use crate::operator::over::{self, Over};
use crate::operator::project::Project;
use crate::operator::retention::Retention;
use crate::operator::session_aggregate::{self, SessionAggregate};
use crate::operator::session_window::{self, SessionWindow};
use crate::operator::temporal_join::{self, TemporalJoin};
use crate::operator::union_all::UnionAll;
use crate::operator::unnest::Unnest;
use crate::operator::window::{Assigner, Window};
use crate::operator::window_aggregate::{self, WindowAggregate};
use crate::operator::window_join::{self, WindowJoin};
use crate::operator::window_rank::{self, RankWindow, WindowRank};
use crate::operator::{Named, Operator, OperatorError, RowText};
use crate::sql::plan::{JoinKind, JoinMethod, JoinSpec, Node as PlanNode, Plan, RankKind, WindowKind};
use crate::state::{KeyedState, StateReader};

/// Index of a node.
pub type NodeId = usize;

/// An operator in its place.
pub struct OperatorNode {
    /// `query/kind/ordinal`: the identity under which state is checkpointed.
    pub name: Arc<str>,
    /// What must not change for the state to be taken over; empty for operators without keyed state.
    pub fingerprint: String,
    /// Name and version of the encoding of the state's values; empty without keyed state.
    pub value_type: &'static str,
    /// Index of the query it belongs to.
    pub query: usize,
    pub inputs: Vec<NodeId>,
    pub operator: Box<dyn Operator>,
    /// Output columns under names for people.
    pub labels: Vec<Field>,
    pub empty: Vec<ArrayRef>,
}

/// All nodes. Node ids count the sources first, then the operators.
pub struct Graph {
    pub sources: Vec<SourceNode>,
    pub operators: Vec<OperatorNode>,
    /// Name and output node of each query.
    pub queries: Vec<(String, NodeId)>,
}

/// What a checkpoint knows of an operator's keyed state.
pub trait Stored {
    /// The operator's number and the namespaces that were open; a new number for a new operator.
    fn operator(&self, name: &str) -> (u32, Vec<i64>);
}

/// Builds the graph of a configuration; keyed states read through `reader`.
///
/// # Errors
/// The plan has a key without order: it was not made by the planner.
pub fn build(
    config: &Config,
    context: &EvalContext,
    stored: &dyn Stored,
    reader: &Arc<dyn StateReader>,
    render: &RowText,
) -> Result<Graph, OperatorError> {
    let sources: Vec<SourceNode> =
        config.sources.iter().map(|source| SourceNode::new(source, &columns_read(config, source))).collect();
    let relations = config.sources.iter().enumerate().map(|(id, source)| (source.name.clone(), id)).collect();
    let mut builder = Builder {
        context,
        stored,
        reader,
        render,
        relations,
        graph: Graph { sources, operators: Vec::new(), queries: Vec::new() },
        query: 0,
        state_ttl: None,
        prefix: String::new(),
        ordinals: BTreeMap::new(),
    };
    for (index, query) in config.queries.iter().enumerate() {
        builder.query = index;
        builder.state_ttl = query.state_ttl;
        builder.prefix = query.name.clone();
        builder.ordinals.clear();
        let id = builder.node(&query.plan)?;
        builder.relations.insert(query.name.clone(), id);
        builder.graph.queries.push((query.name.clone(), id));
    }
    Ok(builder.graph)
}

struct Builder<'a> {
    context: &'a EvalContext,
    stored: &'a dyn Stored,
    reader: &'a Arc<dyn StateReader>,
    render: &'a RowText,
    relations: BTreeMap<String, NodeId>,
    graph: Graph,
    query: usize,
    /// Of that query.
    state_ttl: Option<Duration>,
    prefix: String,
    ordinals: BTreeMap<&'static str, usize>,
}

impl Builder<'_> {
    /// A join, and the encoding of its state.
    fn join(
        &self,
        named: Named,
        (left, right): (&Plan, &Plan),
        join: &JoinSpec,
    ) -> Result<(Box<dyn Operator>, &'static str), OperatorError> {
        let name = Arc::clone(&named.name);
        let condition = Condition::new(join.condition.clone(), &named, &right.schema.fields);
        let (left_time, right_time) = match join.method {
            JoinMethod::Interval { left_time, right_time, .. } | JoinMethod::Temporal { left_time, right_time } => {
                (left_time, right_time)
            }
            JoinMethod::Window { left_end, right_end, .. } => (left_end, right_end),
        };
        let (left_keys, right_keys) = join.keys.iter().cloned().unzip();
        let right_named = Named { input: Arc::new(right.schema.fields.clone()), ..named.clone() };
        debug_assert_eq!(named.input.len(), left.schema.fields.len());
        let sides = (Side::new(named, left_keys, left_time)?, Side::new(right_named, right_keys, right_time)?);
        Ok(match &join.method {
            JoinMethod::Interval { lower_ms, upper_ms, .. } => {
                let (bounds, state) = ((*lower_ms, *upper_ms), self.keyed(&name));
                let operator = IntervalJoin::new(sides, condition, bounds, join.kind, state);
                (Box::new(operator), interval_join::VALUE_TYPE)
            }
            JoinMethod::Temporal { .. } => {
                let pads = join.kind == JoinKind::Left;
                let operator = TemporalJoin::new(sides, condition, pads, self.keyed(&name));
                (Box::new(operator.retaining(Retention::new(self.state_ttl))), temporal_join::VALUE_TYPE)
            }
            JoinMethod::Window { window, .. } => {
                let assigner = Assigner::new(window, &self.context.time_zone);
                let operator = WindowJoin::new(sides, condition, join.kind, assigner, self.keyed(&name));
                (Box::new(operator), window_join::VALUE_TYPE)
            }
        })
    }

    /// The keyed state of the operator with this name.
    fn keyed<V>(&self, name: &str) -> KeyedState<V>
    where
        V: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let (id, namespaces) = self.stored.operator(name);
        KeyedState::new(id, Arc::clone(self.reader), namespaces)
    }

    fn node(&mut self, plan: &Plan) -> Result<NodeId, OperatorError> {
        let (kind, children): (&'static str, Vec<&Plan>) = match &plan.node {
            PlanNode::Scan { relation } => return Ok(self.relations.get(relation).copied().unwrap_or_default()),
            PlanNode::Project { input, .. } => ("project", vec![input]),
            PlanNode::Filter { input, .. } => ("filter", vec![input]),
            PlanNode::UnionAll { inputs } => ("union_all", inputs.iter().collect()),
            PlanNode::Window { input, window } => match window.kind {
                WindowKind::Session { .. } => ("session_window", vec![input]),
                _ => ("window", vec![input]),
            },
            PlanNode::Unnest { input, .. } => ("unnest", vec![input]),
            PlanNode::Expand { input, .. } => ("expand", vec![input]),
            PlanNode::WindowAggregate { input, window, .. } => match window.kind {
                WindowKind::Session { .. } => ("session_aggregate", vec![input]),
                _ => ("window_aggregate", vec![input]),
            },
            PlanNode::Over { input, .. } => ("over", vec![input]),
            PlanNode::Match { input, .. } => ("match", vec![input]),
            PlanNode::Rank { input, .. } => ("rank", vec![input]),
            PlanNode::Lookup { input, .. } => ("lookup", vec![input]),
            PlanNode::Join { left, right, .. } => ("join", vec![left, right]),
        };
        let inputs = children.iter().map(|child| self.node(child)).collect::<Result<Vec<NodeId>, _>>()?;
        let ordinal = self.ordinals.entry(kind).or_default();
        let name: Arc<str> = format!("{}/{kind}/{ordinal}", self.prefix).into();
        *ordinal += 1;
        let input_fields = children.first().map(|child| child.schema.fields.clone()).unwrap_or_default();
        let named = Named { name: Arc::clone(&name), input: Arc::new(input_fields), render: Arc::clone(self.render) };
        let mut fingerprint = String::new();
        let mut value_type = "";
        let operator: Box<dyn Operator> = match &plan.node {
            PlanNode::Scan { .. } => return Ok(0),
            PlanNode::Project { exprs, .. } => Box::new(Project::new(named, exprs.clone())),
            PlanNode::Filter { predicate, .. } => Box::new(Filter::new(named, predicate.clone())),
            PlanNode::UnionAll { inputs } => Box::new(UnionAll::new(Arc::clone(&name), inputs.len())),
            PlanNode::Window { window, .. } => {
                if let WindowKind::Session { gap_ms, partition } = &window.kind {
                    fingerprint = plan.fingerprint().unwrap_or_default();
                    value_type = session_window::VALUE_TYPE;
                    let sessions = (*gap_ms, partition.clone());
                    let state = self.keyed(&name);
                    Box::new(SessionWindow::new(named, window, sessions, self.context, state)?)
                } else {
                    Box::new(Window::new(window, &self.context.time_zone))
                }
            }
            PlanNode::Unnest { array, outer, ordinality, .. } => {
                Box::new(Unnest::new(named, array.clone(), *outer, *ordinality))
            }
            PlanNode::Expand { keys, sets, .. } => Box::new(Expand::new(named, keys.clone(), sets.clone())),
            PlanNode::WindowAggregate { window, keys, properties, aggregates, .. } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                let spec = window_aggregate::Spec {
                    window: window.clone(),
                    keys: keys.clone(),
                    properties: properties.clone(),
                    aggregates: aggregates.clone(),
                };
                if let WindowKind::Session { gap_ms, .. } = window.kind {
                    value_type = session_aggregate::VALUE_TYPE;
                    let state = self.keyed(&name);
                    Box::new(SessionAggregate::new(named, spec, gap_ms, self.context, state)?)
                } else {
                    value_type = window_aggregate::VALUE_TYPE;
                    let state = self.keyed(&name);
                    Box::new(WindowAggregate::new(named, spec, self.context, state)?)
                }
            }
            PlanNode::Over { over, .. } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                value_type = over::VALUE_TYPE;
                let empty = empty_columns(&plan.schema);
                let operator = Over::new(named, over.clone(), empty, self.keyed(&name))?;
                Box::new(operator.retaining(Retention::new(self.state_ttl)))
            }
            PlanNode::Match { spec, .. } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                value_type = match_recognize::VALUE_TYPE;
                let empty = empty_columns(&plan.schema);
                Box::new(MatchRecognize::new(named, spec.as_ref().clone(), empty, self.keyed(&name))?)
            }
            PlanNode::Join { left, right, join } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                let (operator, encoding) = self.join(named, (left, right), join)?;
                value_type = encoding;
                operator
            }
            PlanNode::Lookup { lookup, .. } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                value_type = lookup_join::VALUE_TYPE;
                let condition = Condition::new(lookup.condition.clone(), &named, &lookup.columns.fields);
                let (left_keys, right_keys) = lookup.keys.iter().cloned().unzip();
                let right_named = Named { input: Arc::new(lookup.columns.fields.clone()), ..named.clone() };
                // Neither side's time is looked at.
                let sides = (Side::new(named, left_keys, 0)?, Side::new(right_named, right_keys, 0)?);
                let pads = lookup.kind == JoinKind::Left;
                let state = self.keyed(&name);
                Box::new(LookupJoin::new(sides, lookup.table.clone(), condition, pads, state))
            }
            PlanNode::Rank { input, rank } => {
                fingerprint = plan.fingerprint().unwrap_or_default();
                let empty = empty_columns(&plan.schema);
                match &rank.kind {
                    RankKind::Window { window, end_column, by_time_descending } => {
                        value_type = window_rank::VALUE_TYPE;
                        let window = RankWindow {
                            window: window.clone(),
                            end_column: *end_column,
                            last_of_ties: *by_time_descending && rank.limit == Some(1),
                        };
                        let state = self.keyed(&name);
                        Box::new(WindowRank::new(named, rank.clone(), window, empty, self.context, state)?)
                    }
                    RankKind::First => {
                        value_type = first_row::VALUE_TYPE;
                        let time = input.schema.time.unwrap_or_default();
                        let state = self.keyed(&name);
                        let operator = FirstRow::new(named, time, rank.keys.clone(), empty, state)?;
                        Box::new(operator.retaining(Retention::new(self.state_ttl)))
                    }
                    RankKind::Last => {
                        value_type = last_row::VALUE_TYPE;
                        let time = input.schema.time.unwrap_or_default();
                        let retention = Retention::new(self.state_ttl);
                        let state = self.keyed(&name);
                        Box::new(LastRow::new(named, time, rank.keys.clone(), retention, state)?)
                    }
                }
            }
        };
        let empty = empty_columns(&plan.schema);
        let query = self.query;
        self.graph.operators.push(OperatorNode {
            name,
            fingerprint,
            value_type,
            query,
            inputs,
            operator,
            labels: plan.labels(),
            empty,
        });
        Ok(self.graph.sources.len() + self.graph.operators.len() - 1)
    }
}

fn empty_columns(schema: &Schema) -> Vec<ArrayRef> {
    schema.fields.iter().map(|field| new_empty_array(&field.data_type.arrow())).collect()
}

/// Which columns of a source anybody reads, the system columns last.
pub fn columns_read(config: &Config, source: &Source) -> Vec<bool> {
    let first = source.columns.len();
    // Late and failed rows come out whole.
    let whole = config.sinks.iter().any(|sink| matches!(sink.from, Stream::Late(_) | Stream::Errors(_)));
    let mut reads: Vec<bool> = (0..first + SYSTEM_COLUMNS.len()).map(|column| whole && column < first).collect();
    let mut read = |column: usize| reads.get_mut(column).into_iter().for_each(|read| *read = true);
    for query in &config.queries {
        let all = (0..query.plan.schema.fields.len()).collect();
        visit_scans(&query.plan, &all, &mut |relation, columns| {
            if relation == source.name {
                columns.iter().for_each(|column| read(*column));
            }
        });
    }
    let of_source = |stream: &Stream| matches!(stream, Stream::Source(name) if *name == source.name);
    config.sinks.iter().filter(|sink| of_source(&sink.from)).flat_map(|sink| &sink.columns).for_each(|it| read(*it));
    // The arrival is the time attribute where none is declared.
    read(source.time.column.unwrap_or(first));
    reads
}

/// Calls `visit` with each relation that the plan scans and the columns that are read of it, where `wanted` columns of
/// the plan's own output are.
fn visit_scans(plan: &Plan, wanted: &BTreeSet<usize>, visit: &mut dyn FnMut(&str, &BTreeSet<usize>)) {
    let of = |exprs: &mut dyn Iterator<Item = &Expr>| exprs.flat_map(Expr::columns).collect::<BTreeSet<usize>>();
    match &plan.node {
        PlanNode::Scan { relation } => visit(relation, wanted),
        PlanNode::Project { input, exprs } => visit_scans(input, &of(&mut exprs.iter()), visit),
        PlanNode::Filter { input, predicate } => {
            let mut below = of(&mut std::iter::once(predicate));
            below.extend(wanted);
            visit_scans(input, &below, visit);
        }
        PlanNode::UnionAll { inputs } => inputs.iter().for_each(|input| visit_scans(input, wanted, visit)),
        PlanNode::Unnest { input, array, .. } => {
            let mut below = of(&mut std::iter::once(array));
            below.extend(wanted.range(..input.schema.fields.len()));
            visit_scans(input, &below, visit);
        }
        PlanNode::Expand { input, keys, .. } => {
            let width = input.schema.fields.len();
            let mut below = of(&mut keys.iter());
            below.extend(wanted.range(..width));
            visit_scans(input, &below, visit);
        }
        PlanNode::Window { input, window } if !matches!(window.kind, WindowKind::Session { .. }) => {
            let mut below = wanted.clone();
            below.insert(window.time_column);
            visit_scans(input, &below, visit);
        }
        PlanNode::WindowAggregate { input, window, keys, aggregates, .. } => {
            let inner = aggregates.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
            let mut below = of(&mut keys.iter().chain(inner));
            below.insert(window.time_column);
            visit_scans(input, &below, visit);
        }
        // These keep whole rows of their inputs.
        PlanNode::Window { input, .. }
        | PlanNode::Over { input, .. }
        | PlanNode::Match { input, .. }
        | PlanNode::Rank { input, .. }
        | PlanNode::Lookup { input, .. } => {
            visit_scans(input, &(0..input.schema.fields.len()).collect(), visit);
        }
        PlanNode::Join { left, right, .. } => {
            visit_scans(left, &(0..left.schema.fields.len()).collect(), visit);
            visit_scans(right, &(0..right.schema.fields.len()).collect(), visit);
        }
    }
}

/// Where a stream's rows come out of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    Node(NodeId),
    Dead(usize),
    Late(usize),
    Errors(usize),
}

impl Graph {
    /// Where a sink's stream comes out. The configuration has resolved its name.
    pub fn outlet(&self, stream: &Stream) -> Option<Outlet> {
        let source = |name: &String| self.sources.iter().position(|source| *source.name == **name);
        let query = |name: &String| self.queries.iter().position(|(query, _)| query == name);
        match stream {
            Stream::Source(name) => source(name).map(Outlet::Node),
            Stream::Query(name) => {
                self.queries.iter().find(|(query, _)| query == name).map(|(_, node)| Outlet::Node(*node))
            }
            Stream::Dead(name) => source(name).map(Outlet::Dead),
            Stream::Late(name) => query(name).map(Outlet::Late),
            Stream::Errors(name) => query(name).map(Outlet::Errors),
        }
    }
}
