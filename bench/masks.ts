import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Check } from 'typebox/schema';
import { jsonSchemaGrammar } from '../src/inference/constraints/json-schema.ts';
import { compileProgram } from '../src/inference/constraints/program.ts';
import { inlineRefs } from '../src/inference/constraints/schema-refs.ts';
import { withoutDroppedKeywords } from '../src/inference/pipeline/dropped-keywords.ts';
import { ApiError } from '../src/platform/errors.ts';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { documentedReasons } from './documented-forms.ts';
import { GrammarStates, type State } from './grammar-states.ts';
import { inOrder } from './instance-order.ts';
import { MaskSide } from './mask-side.ts';
import { tokensOf, vocabulary } from './mask-vocabulary.ts';
import { afterToken, beginning, type Standing } from './mask-walk.ts';

/** Masks of the compiler against those of llguidance, token by token; see bench/masks.md. */
const usage = `node scripts/run.mjs bench/masks.ts FILE [options]

  FILE             a line of JSON for each schema: {"name", "schema", "tests": [{"valid", "data"}]}
  --python FILE    a Python that has llguidance and jsonschema (default python3)
  --witnesses FILE where each witness is written, a line of JSON (default: nowhere)
  --part N/M       only each M-th schema, from the N-th

It ends with 1 when it finds an error of the compiler.
`;

interface Case {
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly valid: boolean; readonly data: unknown }[];
}

/** What a difference turned out to be, in the order of the table. */
const kinds = {
  dead: 'ERROR HERE: an allowed token that leads nowhere',
  invalid: 'ERROR HERE: an allowed token; the texts after it are invalid',
  refusedForm: 'refused here: the same value is accepted in another writing (order of members, escapes, digits)',
  refusedKnown: 'refused here, as documented: undeclared members, implied types, digits, tuples',
  refused: 'ERROR HERE: a refused token with a valid continuation',
  dropped: 'allowed here, invalid only under a keyword that is dropped',
  theirInvalid: 'ERROR THERE: an allowed token; the texts after it are invalid',
  theirRefused: 'refused there, with a valid continuation',
  theirDead: 'allowed there, and four random walks of 1,200 bytes find no end',
  undecided: 'the validators disagree, or cannot read the schema',
} as const;
type Kind = keyof typeof kinds;

const droppedKeywords = new Set(['if', 'then', 'else', 'not', 'uniqueItems', 'multipleOf', 'format']);
const witnessesMax = 6;
const walksMax = 6;
const textMax = 3000;

const [refused, allowed, blank] = [0, 1, 2];

interface Mask {
  readonly verdicts: Uint8Array;
  readonly compared: number;
}

class Comparison {
  readonly words = vocabulary();
  readonly found = new Map<Kind, { witnesses: number; schemas: Set<string> }>();
  readonly counts = { schemas: 0, here: 0, there: 0, both: 0, tokens: 0, positions: 0, differing: 0, tooMany: 0 };
  readonly #side: MaskSide;
  readonly #witnessFile: string | undefined;
  readonly #masks = new WeakMap<State, Map<string, Mask>>();
  #seed = 1;

  constructor(side: MaskSide, witnessFile: string | undefined) {
    this.#side = side;
    this.#witnessFile = witnessFile;
  }

  async start(): Promise<string> {
    const tokens = this.words.map((word) => Buffer.from(word).toString('base64'));
    const { llguidance, jsonschema } = await this.#side.ask({ ask: 'vocabulary', tokens });
    return `llguidance ${llguidance}, jsonschema ${jsonschema}, ${this.words.length} tokens`;
  }

  async schema(each: Case): Promise<void> {
    const schema = withoutNullable(each.schema);
    const { name } = each;
    this.counts.schemas++;
    this.#seed = 1;
    const states = statesOf(schema);
    const kept = keptOf(schema);
    const opened = await this.#side.ask({ ask: 'open', schema, kept });
    if (states !== undefined) this.counts.here++;
    if (opened.error === undefined) this.counts.there++;
    if (states === undefined) return;
    if (states.deadSteps > 0) this.#note('dead', name, { schema, steps: states.deadSteps });
    const judge = new Judge(this.#side, schema, kept);
    const texts = each.tests
      .filter(({ valid }) => valid)
      .map(({ data }) => JSON.stringify(inOrder(data, schema, schema)));
    const walks = texts.slice(0, walksMax - 3);
    for (const free of [0, 60, 400]) walks.push(states.finish(states.start, this.random, free));
    for (const own of walks.slice(-3)) await this.#judgeOwn(name, own, judge, {});
    if (opened.error !== undefined) return;
    this.counts.both++;
    const open = { left: witnessesMax, here: new Set<string>(), there: new Set<string>() };
    for (const text of walks) {
      if (text.length <= textMax) await this.#walk(name, states, compact(text), judge, open);
    }
  }

  /** Compares the masks along a text, and follows some of the differences to a whole text. */
  async #walk(
    name: string,
    states: GrammarStates,
    text: string,
    judge: Judge,
    open: { left: number; readonly here: Set<string>; readonly there: Set<string> },
  ): Promise<void> {
    const tokens = tokensOf(text, this.words, () => this.random() < 0.3);
    const { masks = [] } = await this.#side.ask({ ask: 'masks', tokens });
    let standing: Standing = beginning(states);
    for (const [index, mask] of masks.entries()) {
      const bits = Buffer.from(mask, 'base64');
      const isAllowedThere = (token: number): boolean => (bits[token >> 3]! & (1 << (token & 7))) !== 0;
      const isForced = bits.reduce((sum, byte) => sum + bitsIn(byte), 0) === 1;
      this.counts.positions++;
      const before = tokens.slice(0, index);
      const own = this.#mask(states, standing);
      this.counts.tokens += own.compared;
      for (const [token, word] of this.words.entries()) {
        if (own.verdicts[token] === blank || (own.verdicts[token] === allowed) === isAllowedThere(token)) continue;
        const after = own.verdicts[token] === allowed ? (afterToken(states, standing, word) as Standing) : undefined;
        // What is forced has one token in the mask, even where others write the same.
        if (
          after !== undefined &&
          isForced &&
          (await this.#side.ask({ ask: 'takes', tokens: [...before, token] })).takes === true
        ) {
          continue;
        }
        this.counts.differing++;
        const side = after === undefined ? open.there : open.here;
        const key = `${standing.inString} ${standing.isEscaped} ${String.fromCodePoint(word[0]!)} ${word.length > 1}`;
        if (side.has(key) || side.size >= witnessesMax) continue;
        side.add(key);
        if (after === undefined) await this.#followTheirs(name, states, [...before, token], judge);
        else await this.#followOurs(name, states, after, [...before, token], judge);
      }
      const isEnd = standing.state.isComplete && standing.part.length === 0;
      if (isEnd !== isAllowedThere(this.words.length) && !open.here.has('end')) {
        open.here.add('end');
        const whole = Buffer.concat(before.map((token) => this.words[token]!)).toString();
        if (isEnd) await this.#judgeOwn(name, whole, judge, { end: true });
        else await this.#judgeTheirs(name, states, [whole], judge, { end: true });
      }
      const next = index < tokens.length ? afterToken(states, standing, this.words[tokens[index]!]!) : undefined;
      if (next === undefined || next === 'blank') return;
      standing = next;
    }
  }

  /** In a text of many characters most places are alike, so a mask is made once for each state. */
  #mask(states: GrammarStates, standing: Standing): Mask {
    const { state, part, inString, isEscaped } = standing;
    let known = this.#masks.get(state);
    if (known === undefined) this.#masks.set(state, (known = new Map()));
    const key = `${inString} ${isEscaped} ${part.join()}`;
    let mask = known.get(key);
    if (mask === undefined) {
      const verdicts = Uint8Array.from(this.words, (word) => {
        const after = afterToken(states, standing, word);
        return after === 'blank' ? blank : after === undefined ? refused : allowed;
      });
      known.set(key, (mask = { verdicts, compared: verdicts.filter((each) => each !== blank).length }));
    }
    return mask;
  }

  #text(tokens: readonly number[]): Buffer {
    return Buffer.concat(tokens.map((token) => this.words[token]!));
  }

  async #followOurs(
    name: string,
    states: GrammarStates,
    after: Standing,
    tokens: readonly number[],
    judge: Judge,
  ): Promise<void> {
    const { part, state } = after;
    if (part.length > 0) return; // Judged by the whole characters.
    const before = this.#text(tokens);
    for (const free of [0, 30]) {
      const text = before.toString() + states.finish(state, this.random, free);
      if (await this.#judgeOwn(name, text, judge, { token: before.toString() })) return;
    }
  }

  /** Whether a text that the grammar allows, and llguidance may not, is valid. */
  async #judgeOwn(name: string, text: string, judge: Judge, about: object): Promise<boolean> {
    const verdict = await judge.verdict(text);
    const witness = { text, broken: verdict.broken, ...about, schema: judge.schema };
    if (verdict.is === 'undecided') this.#note('undecided', name, witness);
    else if (verdict.is === 'invalid') this.#note('invalid', name, witness);
    else if (verdict.is === 'dropped') this.#note('dropped', name, witness);
    else if ('token' in about) this.#note('theirRefused', name, witness);
    return verdict.is === 'valid';
  }

  async #followTheirs(name: string, states: GrammarStates, tokens: readonly number[], judge: Judge): Promise<void> {
    const start = this.#text(tokens);
    const { texts = [] } = await this.#side.ask({ ask: 'finish', tokens, count: 4, seed: this.#seed++ });
    const whole = texts.map((text) => Buffer.concat([start, Buffer.from(text, 'base64')]).toString());
    if (whole.length === 0) return this.#note('theirDead', name, { token: start.toString(), schema: judge.schema });
    await this.#judgeTheirs(name, states, whole, judge, { token: start.toString() });
  }

  async #judgeTheirs(
    name: string,
    states: GrammarStates,
    texts: readonly string[],
    judge: Judge,
    about: object,
  ): Promise<void> {
    let last: { readonly is: string } = { is: 'none' };
    for (const text of texts) {
      const verdict = await judge.verdict(text);
      last = verdict;
      if (verdict.is !== 'valid') continue;
      const value: unknown = JSON.parse(text);
      const written = JSON.stringify(inOrder(value, judge.schema, judge.schema));
      const reasons = [...new Set(documentedReasons(value, [judge.schema], judge.schema))];
      const kind = accepts(states, written) ? 'refusedForm' : reasons.length > 0 ? 'refusedKnown' : 'refused';
      return this.#note(kind, name, { text, reasons, ...about, schema: judge.schema });
    }
    const witness = { texts, ...about, ...last, schema: judge.schema };
    if (last.is === 'invalid') this.#note('theirInvalid', name, witness);
    else if (last.is === 'undecided') this.#note('undecided', name, witness);
  }

  #note(kind: Kind, schema: string, witness: object): void {
    let entry = this.found.get(kind);
    if (entry === undefined) this.found.set(kind, (entry = { witnesses: 0, schemas: new Set() }));
    entry.witnesses++;
    entry.schemas.add(schema);
    if (this.#witnessFile === undefined) return;
    appendFileSync(this.#witnessFile, `${JSON.stringify({ kind, name: schema, ...witness })}\n`);
  }

  /** Equal in each run. */
  readonly random = (): number => {
    this.#seed = (Math.imul(this.#seed, 1_103_515_245) + 12_345) & 0x7fffffff;
    return this.#seed / 0x80000000;
  };
}

/** Two validators, which must agree before a text counts as a witness. */
class Judge {
  readonly schema: unknown;
  readonly #kept: unknown;
  readonly #side: MaskSide;

  constructor(side: MaskSide, schema: unknown, kept: unknown) {
    this.#side = side;
    this.schema = schema;
    this.#kept = kept;
  }

  async verdict(text: string): Promise<{
    readonly is: 'valid' | 'invalid' | 'dropped' | 'undecided';
    readonly broken?: readonly string[] | null;
  }> {
    const { broken = [] } = await this.#side.ask({ ask: 'judge', texts: [text] });
    const { broken: brokenKept = [] } = await this.#side.ask({ ask: 'judge', texts: [text], all: false });
    const [all, kept] = [broken[0] ?? null, brokenKept[0] ?? null];
    if (all === null || kept === null) return { is: 'undecided', broken: null };
    const second = isValid(this.#kept, text);
    if (all.length === 0) return second === false ? { is: 'undecided', broken: all } : { is: 'valid' };
    if (second === undefined || second !== (kept.length === 0)) return { is: 'undecided', broken: all };
    if (kept.length > 0) return { is: 'invalid', broken: kept };
    // A condition whose consequence is `false` names no keyword.
    const isDropped = all.some((keyword) => keyword === 'false' || droppedKeywords.has(keyword));
    return { is: isDropped ? 'dropped' : 'invalid', broken: all };
  }
}

function isValid(schema: unknown, text: string): boolean | undefined {
  if (!hasReadablePatterns(schema)) return undefined;
  try {
    return Check(schema as object, JSON.parse(text));
  } catch (error) {
    return error instanceof SyntaxError ? false : undefined;
  }
}

/** The validator takes what does not match a pattern that it cannot read for invalid. */
function hasReadablePatterns(schema: unknown): boolean {
  try {
    JSON.stringify(schema, (name, value: unknown) => {
      if (name === 'pattern' && typeof value === 'string') new RegExp(value, 'u');
      return value;
    });
    return true;
  } catch {
    return false;
  }
}

/** `nullable` of OpenAPI is enforced here, and no keyword for the others: written as they read it. */
function withoutNullable(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutNullable);
  if (typeof schema !== 'object' || schema === null) return schema;
  const made = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, withoutNullable(value)]));
  return made['nullable'] === true && typeof made['type'] === 'string'
    ? { ...made, type: [made['type'], 'null'] }
    : made;
}

/** The schema without the keywords that are dropped. */
function keptOf(schema: unknown): unknown {
  try {
    return withoutDroppedKeywords(inlineRefs(schema, 'schema'));
  } catch {
    return schema;
  }
}

function statesOf(schema: unknown): GrammarStates | undefined {
  try {
    return new GrammarStates(compileProgram(jsonSchemaGrammar(schema, 'schema')));
  } catch (error) {
    if (error instanceof ApiError) return undefined;
    throw error;
  }
}

function accepts(states: GrammarStates, text: string): boolean {
  let state = states.start;
  for (const character of text) {
    const next = states.after(state, character.codePointAt(0)!);
    if (next === undefined) return false;
    state = next;
  }
  return state.isComplete;
}

function bitsIn(byte: number): number {
  return byte.toString(2).replaceAll('0', '').length;
}

/** Without white space between tokens, as llguidance is asked to write; everything else stays as it is written. */
function compact(text: string): string {
  return text.replaceAll(/("(?:[^"\\]|\\.)*")|\s+/gsu, '$1');
}

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...args],
    options: { python: { type: 'string' }, witnesses: { type: 'string' }, part: { type: 'string' } },
    allowPositionals: true,
  });
  const [file] = positionals;
  if (file === undefined) throw new UsageError('Which file?');
  const [first = 1, step = 1] = (values.part ?? '1/1').split('/').map(Number);
  const lines = readFileSync(file, 'utf8').split('\n');
  const all = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Case);
  const cases = all.filter((_, index) => index % step === first - 1);
  if (values.witnesses !== undefined) writeFileSync(values.witnesses, '');
  const side = new MaskSide(values.python ?? 'python3');
  const comparison = new Comparison(side, values.witnesses);
  console.log(await comparison.start());
  for (const [index, each] of cases.entries()) {
    if (index % 100 === 0) say(`${index} of ${cases.length}`);
    try {
      await comparison.schema(each);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      comparison.counts.tooMany++;
      say(`${each.name}: ${error.message}`);
    }
  }
  await side.dispose();
  for (const [name, count] of Object.entries(comparison.counts)) console.log(`${name.padEnd(14)} ${count}`);
  for (const [kind, text] of Object.entries(kinds) as [Kind, string][]) {
    const entry = comparison.found.get(kind);
    console.log(`${text.padEnd(110)} ${entry?.witnesses ?? 0} in ${entry?.schemas.size ?? 0} schemas`);
  }
  if (comparison.found.has('dead') || comparison.found.has('invalid')) process.exitCode = 1;
}
