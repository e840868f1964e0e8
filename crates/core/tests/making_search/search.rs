//! The search: every state that sequences of unsigned acts can reach, each state looked at once.
#![expect(
    clippy::disallowed_types,
    reason = "states are looked up by the ten thousand, and the time is told"
)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::acts::Act;
use crate::loss::{Loss, Lost, losses, taken_away};
use crate::node::Node;
use crate::sequences::sequences;
use crate::sight::Eyes;

/// A sequence that loses something.
pub(crate) struct Finding {
    pub(crate) lost: Lost,
    pub(crate) steps: Vec<String>,
}

/// What a search came to.
#[derive(Default)]
pub(crate) struct Searched {
    pub(crate) states: usize,
    /// Times that evenkeel was asked.
    pub(crate) judged: u64,
    /// How often each act ran.
    pub(crate) ran: Vec<u64>,
    pub(crate) sequences: u128,
    pub(crate) took: Duration,
    pub(crate) findings: Vec<Finding>,
}

impl Searched {
    pub(crate) fn finds(&self, loss: Loss) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.lost.loss == loss)
    }
}

/// A state with the way to it.
struct Reached {
    node: Node,
    from: Option<(usize, usize, &'static str)>,
    leads_to: Vec<usize>,
}

/// Looks at every sequence of up to `depth` acts; tells the first loss of each kind.
pub(crate) fn search(start: &Node, acts: &[Act], depth: usize, eyes: Eyes) -> Searched {
    let began = Instant::now();
    let mut searched = Searched { ran: vec![0; acts.len()], ..Searched::default() };
    let mut reached = vec![Reached { node: start.clone(), from: None, leads_to: Vec::new() }];
    let mut known: HashMap<Node, usize> = HashMap::from([(start.clone(), 0)]);
    let mut layer = vec![0];
    for _ in 0..depth {
        let mut next_layer = Vec::new();
        for at in layer {
            let look = eyes.look(&reached[at].node);
            for (which, act) in acts.iter().enumerate() {
                searched.judged += 1;
                for (how, node) in eyes.run(&reached[at].node, &look, act) {
                    if node == reached[at].node {
                        continue;
                    }
                    searched.ran[which] += 1;
                    let mut lost = taken_away(&reached[at].node, &node);
                    let to = *known.entry(node.clone()).or_insert(reached.len());
                    reached[at].leads_to.push(to);
                    let from = Some((at, which, how));
                    if to < reached.len() && lost.is_empty() {
                        continue;
                    }
                    if to == reached.len() {
                        lost.extend(losses(start, &node));
                        reached.push(Reached { node, from, leads_to: Vec::new() });
                        if lost.is_empty() {
                            next_layer.push(to);
                        }
                    }
                    // What is lost stays lost: nothing is looked for beyond it.
                    for lost in lost {
                        if searched.finds(lost.loss).is_none() {
                            let steps = way(&reached, from, acts);
                            searched.findings.push(Finding { lost, steps });
                        }
                    }
                }
            }
        }
        layer = next_layer;
    }
    searched.states = reached.len();
    searched.sequences = sequences(|at| &reached[at].leads_to, reached.len(), depth);
    searched.took = began.elapsed();
    searched
}

/// The acts up to one.
fn way(
    reached: &[Reached],
    mut last: Option<(usize, usize, &'static str)>,
    acts: &[Act],
) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some((before, which, how)) = last {
        steps.push(format!("{} ({how})", acts[which].name));
        last = reached[before].from;
    }
    steps.reverse();
    steps
}
