import { refuseAt, type Position } from './ebnf-tokens.ts';
import { renamed, type Expression, type Grammar } from './grammar.ts';
import { isNullable, nullableRules } from './normal-form.ts';
import type { Work } from './work.ts';

/** A rule as written; `names` are the positions where it refers to others. */
export interface EbnfRule extends Position {
  readonly expression: Expression;
  readonly names: ReadonlyMap<string, Position>;
}

const ebnfRulesMax = 1_000;
/** Bound on nested counts if the repeated part has no fixed end: an engine tracks every way to split a text. */
const nestedCountsMax = 400;
/** Bound on a chain of rules that refer to each other. */
const ruleChainMax = 300;
/** Bound on adjacent optional parts: an engine tracks each of them. */
const leftOutMax = 64;

/**
 * Checks the rules of a client's grammar and returns those reachable from the start, under names that every engine accepts: each is
 * defined, none begins with itself, each can end, and none is so ambiguous that an engine stalls.
 */
export function checkEbnfRules(rules: ReadonlyMap<string, EbnfRule>, root: string, at: string, work: Work): Grammar {
  if (rules.size > ebnfRulesMax) {
    refuseAt(`the grammar has more than ${ebnfRulesMax} rules`, { line: 1, column: 1 }, at);
  }
  for (const { names } of rules.values()) {
    for (const [name, position] of names) if (!rules.has(name)) refuseAt('this rule is not defined', position, at);
  }
  const reached = new Set([root]);
  for (const name of reached) for (const next of rules.get(name)?.names.keys() ?? []) reached.add(next);
  const plain = new Map<string, Expression>();
  for (const name of reached) plain.set(name, rules.get(name)?.expression ?? { kind: 'sequence', items: [] });
  const grammar: Grammar = { root, rules: plain };
  refuseLongChains(rules, root, at);
  const nullable = nullableRules(grammar, work);
  refuseLeftRecursion(grammar, nullable, rules, at, work);
  refuseEndless(grammar, rules, at, work);
  const counts = new Map<string, number>();
  const leftOut = new Map<string, number>();
  for (const [name, expression] of plain) {
    const position = rules.get(name) ?? { line: 1, column: 1 };
    if (longestLeftOut(expression, nullable, plain, leftOut, work) > leftOutMax) {
      refuseAt(`more than ${leftOutMax} parts in a row can be left out in this rule`, position, at);
    }
    if (nestedCounts(expression, plain, counts, work) > nestedCountsMax) {
      refuseAt(`counts inside each other multiply to more than ${nestedCountsMax} in this rule`, position, at);
    }
  }
  return renamedRules(grammar);
}

/** Breadth first: finds rules that can only be reached through too many others. Chains with a shorter way are walked from there. */
function refuseLongChains(rules: ReadonlyMap<string, EbnfRule>, root: string, at: string): void {
  const distances = new Map([[root, 0]]);
  for (const [name, distance] of distances) {
    const written = rules.get(name);
    if (written === undefined) continue;
    if (distance > ruleChainMax) refuseAt(`more than ${ruleChainMax} rules name each other in a chain`, written, at);
    for (const next of written.names.keys()) if (!distances.has(next)) distances.set(next, distance + 1);
  }
}

function refuseLeftRecursion(
  grammar: Grammar,
  nullable: ReadonlySet<string>,
  rules: ReadonlyMap<string, EbnfRule>,
  at: string,
  work: Work,
): void {
  const done = new Set<string>();
  for (const start of grammar.rules.keys()) {
    // Depth first with an explicit stack: 2,000 rules may form a chain.
    const path = new Set<string>();
    const open: { readonly name: string; readonly leaves: boolean }[] = [{ name: start, leaves: false }];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      work.spend(1);
      if (next.leaves) {
        path.delete(next.name);
        done.add(next.name);
        continue;
      }
      if (path.has(next.name))
        refuseAt('this rule begins with itself', rules.get(next.name) ?? { line: 1, column: 1 }, at);
      if (done.has(next.name)) continue;
      path.add(next.name);
      open.push({ name: next.name, leaves: true });
      const expression = grammar.rules.get(next.name);
      const firsts = new Set<string>();
      if (expression !== undefined) collectFirsts(expression, nullable, firsts, work);
      for (const first of firsts) open.push({ name: first, leaves: false });
    }
  }
}

/** Collects the rules that a text of the expression can begin with. */
function collectFirsts(expression: Expression, nullable: ReadonlySet<string>, found: Set<string>, work: Work): void {
  work.spend(1);
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return;
    case 'alternatives':
      for (const item of expression.items) collectFirsts(item, nullable, found, work);
      return;
    case 'sequence':
      for (const item of expression.items) {
        collectFirsts(item, nullable, found, work);
        if (!isNullable(item, nullable, work)) return;
      }
      return;
    case 'repetition':
      collectFirsts(expression.item, nullable, found, work);
      return;
    case 'rule':
      found.add(expression.name);
  }
}

/** Refuses a rule that always leads back to itself, because an answer could never end. */
function refuseEndless(grammar: Grammar, rules: ReadonlyMap<string, EbnfRule>, at: string, work: Work): void {
  const ends = new Set<string>();
  // A rule mostly names later ones, so one pass from the last to the first finds nearly all.
  const lastFirst = [...grammar.rules].toReversed();
  for (let size = -1; size !== ends.size;) {
    size = ends.size;
    for (const [name, expression] of lastFirst) if (!ends.has(name) && canEnd(expression, ends, work)) ends.add(name);
  }
  for (const name of grammar.rules.keys()) {
    if (!ends.has(name)) refuseAt('this rule never ends', rules.get(name) ?? { line: 1, column: 1 }, at);
  }
}

function canEnd(expression: Expression, ends: ReadonlySet<string>, work: Work): boolean {
  work.spend(1);
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return true;
    case 'sequence':
      return expression.items.every((item) => canEnd(item, ends, work));
    case 'alternatives':
      return expression.items.some((item) => canEnd(item, ends, work));
    case 'repetition':
      return expression.min === 0 || canEnd(expression.item, ends, work);
    case 'rule':
      return ends.has(expression.name);
  }
}

/** Returns the maximum number of adjacent optional parts, including those inside rules; a rule that refers to itself counts once. */
function longestLeftOut(
  expression: Expression,
  nullable: ReadonlySet<string>,
  rules: ReadonlyMap<string, Expression>,
  known: Map<string, number>,
  work: Work,
): number {
  work.spend(1);
  const longest = (item: Expression): number => longestLeftOut(item, nullable, rules, known, work);
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return 0;
    case 'alternatives':
      return expression.items.reduce((most, item) => Math.max(most, longest(item)), 0);
    case 'repetition':
      return longest(expression.item);
    case 'rule': {
      const { name } = expression;
      const before = known.get(name);
      if (before !== undefined) return before;
      known.set(name, 1);
      const body = rules.get(name);
      const own = body === undefined ? 0 : longest(body);
      known.set(name, own);
      return own;
    }
    case 'sequence': {
      let most = 0;
      let run = 0;
      for (const item of expression.items) {
        const inside = longest(item);
        run = isNullable(item, nullable, work) ? run + Math.max(inside, 1) : 0;
        most = Math.max(most, run, inside);
      }
      return most;
    }
  }
}

/** Returns the largest product of nested counts; a rule that refers to itself counts once. */
function nestedCounts(
  expression: Expression,
  rules: ReadonlyMap<string, Expression>,
  known: Map<string, number>,
  work: Work,
): number {
  work.spend(1);
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return 1;
    case 'sequence':
    case 'alternatives':
      return expression.items.reduce((most, item) => Math.max(most, nestedCounts(item, rules, known, work)), 1);
    case 'repetition': {
      const inner = nestedCounts(expression.item, rules, known, work);
      const times = expression.max ?? 1;
      // A single count, however large, can be followed in linear time; so can one whose items have an end of their own.
      const alone = Math.min(times, nestedCountsMax);
      if (inner === 1) return alone;
      return hasOwnEnd(expression.item, rules, work) ? Math.max(inner, alone) : inner * times;
    }
    case 'rule': {
      const { name } = expression;
      const before = known.get(name);
      if (before !== undefined) return before;
      known.set(name, 1);
      const body = rules.get(name);
      const own = body === undefined ? 1 : nestedCounts(body, rules, known, work);
      known.set(name, own);
      return own;
    }
  }
}

/** Whether the last character of an item occurs nowhere else in it, so that a text can be split into items in only one way. */
function hasOwnEnd(expression: Expression, rules: ReadonlyMap<string, Expression>, work: Work): boolean {
  const item = expression.kind === 'rule' ? rules.get(expression.name) : expression;
  if (item?.kind !== 'sequence') return false;
  const last = item.items.at(-1);
  if (last?.kind !== 'literal' || last.text.length !== 1) return false;
  const point = last.text.codePointAt(0) ?? 0;
  const seen = new Set<string>();
  return item.items.slice(0, -1).every((each) => neverHas(each, point, rules, seen, work));
}

function neverHas(
  expression: Expression,
  point: number,
  rules: ReadonlyMap<string, Expression>,
  seen: Set<string>,
  work: Work,
): boolean {
  work.spend(1);
  switch (expression.kind) {
    case 'literal':
      return !expression.text.includes(String.fromCodePoint(point));
    case 'characters':
      return expression.set.every(([first, last]) => point < first || point > last);
    case 'sequence':
    case 'alternatives':
      return expression.items.every((item) => neverHas(item, point, rules, seen, work));
    case 'repetition':
      return neverHas(expression.item, point, rules, seen, work);
    case 'rule': {
      if (seen.has(expression.name)) return true;
      seen.add(expression.name);
      const body = rules.get(expression.name);
      return body !== undefined && neverHas(body, point, rules, seen, work);
    }
  }
}

/** Renames rules: llama.cpp allows no underscores or blanks in names, and the start is called `root`. */
function renamedRules({ root, rules }: Grammar): Grammar {
  const names = new Map([[root, 'root']]);
  const taken = new Set(['root']);
  for (const name of rules.keys()) {
    if (names.has(name)) continue;
    const base = name.replace(/[^A-Za-z0-9-]/g, '-');
    let free = base;
    for (let number = 2; taken.has(free); number++) free = `${base}-${number}`;
    taken.add(free);
    names.set(name, free);
  }
  const all = new Map<string, Expression>();
  for (const [name, expression] of rules) all.set(names.get(name) ?? name, renamed(expression, names));
  return { root: 'root', rules: all };
}
