//! How packets are spread over the queues of a port: by RSS, or by weight over virtual functions and RSS within each.
//!
//! Must not know when packets come. Marks: docs/reference/README.md#marks.

use crate::random::Stream;

/// How packets are spread over a port's queues.
#[derive(Clone, Debug)]
pub(crate) enum Spread {
    /// RSS over so many queues.
    Rss(u32),
    /// By weight over virtual functions, and by RSS over the queues of each.
    Functions(Vec<Function>),
}

/// The queues of one virtual function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub first: u32,
    pub queues: u32,
    /// Its share of the traffic, relative to those of the others.
    pub weight: f64,
}

impl Spread {
    /// Uneven RSS: the busiest of `queues` queues has `imbalance` times the mean. Loads fall as a power of their rank,
    /// as those of a few large flows among many do (X: a measured maximum says nothing about the others).
    pub(crate) fn uneven(queues: u32, imbalance: f64) -> Spread {
        let loads = |power: f64| (1..=queues).map(move |rank| f64::from(rank).powf(-power));
        let busiest = |power: f64| f64::from(queues) / loads(power).sum::<f64>();
        let (mut low, mut high) = (0.0, 64.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            *if busiest(middle) < imbalance { &mut low } else { &mut high } = middle;
        }
        let function = |(first, weight)| Function { first, queues: 1, weight };
        Spread::Functions((0..queues).zip(loads(low)).map(function).collect())
    }

    /// Appends the queues of further flows until `flows` have one.
    pub(crate) fn deal(&self, queue_of: &mut Vec<u32>, flows: usize, stream: &mut Stream) {
        match self {
            Spread::Rss(queues) => {
                while queue_of.len() < flows {
                    queue_of.push(stream.below(*queues));
                }
            }
            Spread::Functions(functions) => {
                let total: f64 = functions.iter().map(|f| f.weight).sum();
                let has = |f: &Function, queue: u32| (f.first..f.first + f.queues).contains(&queue);
                let mut dealt: Vec<f64> = functions
                    .iter()
                    .map(|f| queue_of.iter().filter(|queue| has(f, **queue)).count() as f64)
                    .collect();
                while queue_of.len() < flows {
                    // To the function that is furthest below its share; of equals the first.
                    let number = queue_of.len() as f64 + 1.0;
                    let due = |index: usize| functions[index].weight / total * number - dealt[index];
                    let next = (1..functions.len()).fold(0, |a, b| if due(b) > due(a) { b } else { a });
                    dealt[next] += 1.0;
                    queue_of.push(functions[next].first + stream.below(functions[next].queues));
                }
            }
        }
    }

    /// The queue of a captured packet's hash.
    #[inline(always)]
    pub(crate) fn of_hash(&self, hash: u32) -> u32 {
        // The low bits of the hash index the indirection table, which spreads queues evenly.
        match self {
            Spread::Rss(queues) => hash % 128 % queues,
            Spread::Functions(functions) => {
                let total: f64 = functions.iter().map(|f| f.weight).sum();
                let at = f64::from(hash) / 4_294_967_296.0 * total;
                let mut upto = 0.0;
                let last = functions.len() - 1;
                let inside = |function: &&Function| {
                    upto += function.weight;
                    at < upto
                };
                let chosen = functions[..last].iter().find(inside).unwrap_or(&functions[last]);
                chosen.first + hash % 128 % chosen.queues
            }
        }
    }
}
