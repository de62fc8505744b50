import { notFinished, oddFinishes } from '../odd-answers.ts';
import { mulberry32 } from '../random.ts';
import { pick, type Random } from './chance.ts';
import { consistent } from './consistent.ts';
import { countOf, type Counted, type Figures } from './count.ts';
import { Framing } from './framing.ts';
import { plainHabits, someHabits, type HabitName, type Habits } from './habits.ts';
import { someMeaning, type Meaning } from './meaning.ts';
import {
  chatPieces,
  completionPieces,
  writtenArguments,
  wholeChoice,
  wholeMessage,
  withEmpties,
  type Piece,
} from './pieces.ts';
import { oddServers, type OddServer } from './servers.ts';
import { partOf, timingsOf, usageOf, writtenFigures, type WrittenUsage } from './usage.ts';

type Json = Readonly<Record<string, unknown>>;

/** Answers that are none: they fail, and cost nothing. */
const faults = [
  ...(['a finish that failed', 'no finish', 'an error', 'an error by name', 'an old error', 'no JSON'] as const),
  ...(['text after the finish', 'a number as text'] as const),
];
export type Fault = (typeof faults)[number];

/** An answer as an odd server says it, and what it means. The same seed gives the same answer. */
export interface OddAnswer {
  readonly seed: number;
  readonly server: OddServer;
  readonly api: 'chat' | 'completions';
  readonly habits: Habits;
  readonly fault: Fault | undefined;
  /** Of each choice. */
  readonly meanings: readonly Meaning[];
  readonly counted: Counted;
  /** A whole body, or the reads of a stream. */
  readonly bytes: Buffer | readonly Buffer[];
}

export interface AnswerOptions {
  /** These habits are OpenAI's, whatever the seed says. */
  readonly without?: ReadonlySet<HabitName>;
  /** One choice of this. */
  readonly only?: OddAnswer['api'];
  readonly server?: OddServer;
  /** Its figures are there, and can be true. */
  readonly isReported?: boolean;
}

export function oddAnswer(
  seed: number,
  { without, only, server: chosenServer, isReported = false }: AnswerOptions = {},
): OddAnswer {
  const random = mulberry32(seed);
  const server = chosenServer ?? pick(random, oddServers);
  const isText = random() < 0.15 && server.completes;
  const api = only ?? (isText ? 'completions' : 'chat');
  const choices = random() < 0.1 && only === undefined && server.choicesMax > 1 ? 2 : 1;
  const wrong = random() < 0.08 ? pick(random, faults) : undefined;
  // Where calls end an answer, it may have no finish.
  const fault = wrong === 'no finish' && server.endsCallsWithoutReason ? 'a finish that failed' : wrong;
  const own = Array.from({ length: choices }, () => someMeaning(random, api === 'completions'));
  // One prompt for all.
  const { prompt, cached } = own[0]!.tokens;
  const meanings = own.map((meaning) => ({ ...meaning, tokens: { ...meaning.tokens, prompt, cached } }));
  const chosen: Record<string, unknown> = { ...someHabits(random, server.habits) };
  const left = isReported ? [...(without ?? []), 'figures' as const, 'usageAt' as const] : (without ?? []);
  for (const name of left) chosen[name] = plainHabits[name];
  // A finish that fails is reported.
  if (fault !== undefined) chosen['finishAt'] = plainHabits.finishAt;
  const habits = consistent(chosen as unknown as Habits, meanings, api, server);
  // Numbers of its own, so that a habit less changes nothing else.
  const written = meanings.map((meaning) => writtenMeaning(meaning, habits));
  const writer = new Writer({ api, habits, fault, meanings: written, random: mulberry32(seed ^ 0x5eed) });
  const { bytes, counted } = writer.write();
  return {
    seed,
    server,
    api,
    habits,
    fault,
    meanings: written,
    counted,
    bytes,
  };
}

function writtenMeaning(meaning: Meaning, habits: Habits): Meaning {
  if (habits.arguments !== 'object') return meaning;
  const calls = meaning.calls.map((call) => ({ ...call, arguments: writtenArguments(call.arguments) }));
  return { ...meaning, calls };
}

interface WriterOptions {
  readonly api: OddAnswer['api'];
  readonly habits: Habits;
  readonly fault: Fault | undefined;
  readonly meanings: readonly Meaning[];
  readonly random: Random;
}

/** A choice on the wire, before its chunk. */
type ChoicePiece = Json & { readonly index?: number };

class Writer {
  readonly #options: WriterOptions;
  readonly #habits: Habits;
  readonly #random: Random;
  readonly #isText: boolean;
  readonly #framing: Framing;

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#habits = options.habits;
    this.#random = options.random;
    this.#isText = options.api === 'completions';
    this.#framing = new Framing(options.habits, options.random);
  }

  write(): Pick<OddAnswer, 'bytes' | 'counted'> {
    const { meanings, fault } = this.#options;
    const { body } = this.#habits;
    if (body === 'events') return this.#streamed();
    const { value, counted } = this.#whole();
    if (body === 'whole') {
      const text = fault === 'no JSON' ? this.#framing.json(value).slice(0, -1) : this.#framing.json(value);
      return { bytes: Buffer.from(text), counted };
    }
    const isOver = fault !== 'no JSON';
    const events = [this.#framing.event(isOver ? value : '{"choices":['), ...this.#framing.ends()];
    return { bytes: this.#framing.reads(events, meanings.length), counted };
  }

  get #figures(): readonly Figures[] {
    return this.#options.meanings.map(({ tokens }) => writtenFigures(tokens, this.#habits));
  }

  /** The figures of all choices. */
  get #total(): Figures {
    const { meanings } = this.#options;
    const sum = (of: 'completion' | 'reasoning'): number => meanings.reduce((all, { tokens }) => all + tokens[of], 0);
    const tokens = { ...meanings[0]!.tokens, completion: sum('completion'), reasoning: sum('reasoning') };
    const figures = writtenFigures(tokens, this.#habits);
    // The limit is that of each.
    if (this.#habits.figures !== 'above the limit') return figures;
    return { ...figures, completion: (figures.completion as number) + 2_000 * (meanings.length - 1) };
  }

  #whole(): { readonly value: Json; readonly counted: Counted } {
    const { meanings, fault } = this.#options;
    const { usageAt } = this.#habits;
    const total = usageOf(this.#total, this.#habits);
    const own = this.#figures.map((figures) => usageOf(figures, this.#habits));
    const choices = meanings.map((meaning, index) => ({
      ...this.#choice(index, this.#isText ? { text: meaning.text } : wholeChoice(meaning, this.#habits)),
      finish_reason: fault === 'no finish' ? null : this.#finishWord(meaning),
      ...(usageAt === 'choice' ? { usage: own[index]!.usage } : {}),
    }));
    const failed: Json | undefined = this.#errorBody();
    if (failed !== undefined) return { value: failed, counted: countOf(meanings, undefined) };
    if (fault === 'a number as text' || fault === 'text after the finish')
      choices.splice(0, 1, { index: 0, finish_reason: 'stop', text: 7, message: { content: 7 } } as never);
    const value = this.#chunk(choices);
    switch (usageAt) {
      case 'none':
        return { value, counted: countOf(meanings, undefined) };
      case 'choice':
        return {
          value,
          counted: countOf(
            meanings,
            undefined,
            own.map((one) => one.reported),
          ),
        };
      case 'x_groq':
        return {
          value: { ...value, x_groq: { id: 'r', usage: total.usage } },
          counted: countOf(meanings, total.reported),
        };
      case 'timings': {
        const { usage: timings, reported: figures } = timingsOf(this.#total);
        return { value: { ...value, timings }, counted: countOf(meanings, figures) };
      }
      case 'end':
      case 'finish':
      case 'before the finish':
      case 'each':
      case 'each and end':
      case 'after each choice':
        return { value: { ...value, usage: total.usage }, counted: countOf(meanings, total.reported) };
    }
  }

  #streamed(): Pick<OddAnswer, 'bytes' | 'counted'> {
    const { meanings, fault } = this.#options;
    const { opens, usageAt } = this.#habits;
    const chunks: Json[] = [];
    if (opens !== 'no') {
      const nothing =
        opens === 'with usage of null' ? { usage: null } : { prompt_filter_results: [{ prompt_index: 0 }] };
      chunks.push({ ...this.#chunk([]), ...nothing });
    }
    const queues = meanings.map((meaning, index) => this.#choicePieces(meaning, index));
    const total = queues.reduce((sum, queue) => sum + queue.length, 0);
    const figures = this.#figures;
    let said = 0;
    while (queues.some((queue) => queue.length > 0)) {
      const open = queues.filter((queue) => queue.length > 0);
      const piece = pick(this.#random, open).shift()!;
      said++;
      const chunk = this.#chunk([piece]);
      const isEach = usageAt === 'each' || usageAt === 'each and end';
      chunks.push(isEach ? { ...chunk, usage: this.#usageSoFar(figures[0]!, said / total) } : chunk);
    }
    const counted = this.#closeWithUsage(chunks);
    const events = chunks.map((chunk) => this.#framing.event(chunk));
    const failed = this.#errorBody();
    if (failed !== undefined)
      this.#insert(events, this.#framing.event(failed, fault === 'an error by name' ? 'error' : undefined));
    if (fault === 'no JSON') this.#insert(events, this.#framing.event('{"choices":['));
    if (fault === 'a number as text')
      this.#insert(
        events,
        this.#framing.event(
          this.#chunk([this.#choice(0, this.#isText ? { text: 7 as never } : { delta: { content: 7 } })]),
        ),
      );
    if (fault === 'text after the finish')
      events.push(
        this.#framing.event(this.#chunk([this.#choice(0, this.#isText ? { text: 'x' } : { delta: { content: 'x' } })])),
      );
    return { bytes: this.#framing.reads([...events, ...this.#framing.ends()], events.length), counted };
  }

  #usageSoFar(figures: Figures, share: number): Json {
    return usageOf(share === 1 ? figures : partOf(figures, share), this.#habits).usage;
  }

  /** Puts the figures where the server has them; returns what they count. */
  #closeWithUsage(chunks: Json[]): Counted {
    const { meanings } = this.#options;
    const { usageAt } = this.#habits;
    const total = usageOf(this.#total, this.#habits);
    const own = this.#figures.map((figures) => usageOf(figures, this.#habits));
    const last = chunks.length - 1;
    switch (usageAt) {
      case 'none':
        return countOf(meanings, undefined);
      case 'each':
        return countOf(meanings, total.reported);
      case 'end':
      case 'each and end':
        chunks.push({ ...this.#chunk([]), usage: total.usage });
        return countOf(meanings, total.reported);
      case 'finish':
        chunks[last] = { ...chunks[last], usage: total.usage };
        return countOf(meanings, total.reported);
      case 'before the finish':
        chunks.splice(last, 0, { ...this.#chunk([]), usage: total.usage });
        return countOf(meanings, total.reported);
      case 'x_groq':
        chunks[last] = { ...chunks[last], x_groq: { id: 'r', usage: total.usage } };
        return countOf(meanings, total.reported);
      case 'timings': {
        const { usage: timings, reported: figures } = timingsOf(this.#total);
        chunks[last] = { ...chunks[last], timings };
        return countOf(meanings, figures);
      }
      case 'choice':
        return this.#atChoices(chunks, own);
      case 'after each choice':
        this.#afterChoices(chunks, own);
        return countOf(
          meanings,
          undefined,
          own.map((one) => one.reported),
        );
    }
  }

  /** Moonshot: in the last piece of each choice. */
  #atChoices(chunks: Json[], own: readonly WrittenUsage[]): Counted {
    own.forEach(({ usage }, index) => {
      const at = chunks.findLastIndex((chunk) => isOfChoice(chunk, index));
      const choice = (chunks[at]!['choices'] as readonly Json[])[0];
      chunks[at] = { ...chunks[at], choices: [{ ...choice, usage }] };
    });
    return countOf(
      this.#options.meanings,
      undefined,
      own.map((one) => one.reported),
    );
  }

  /** llama.cpp: a chunk of its own behind each choice. */
  #afterChoices(chunks: Json[], own: readonly WrittenUsage[]): void {
    own.forEach(({ usage }, index) => {
      const at = chunks.findLastIndex((chunk) => isOfChoice(chunk, index));
      chunks.splice(at + 1, 0, { ...this.#chunk([]), usage });
    });
  }

  #choicePieces(meaning: Meaning, index: number): ChoicePiece[] {
    const { role, closes } = this.#habits;
    const random = this.#random;
    const said = this.#isText
      ? completionPieces(meaning, this.#habits, random)
      : chatPieces(meaning, this.#habits, random);
    const pieces = withEmpties(said, this.#isText, this.#habits, random);
    const withRole = this.#isText
      ? pieces
      : pieces.map((piece, at) => withRoleIn(piece, role === 'in each' || (role === 'with the first' && at === 0)));
    if (!this.#isText && role === 'own chunk') withRole.unshift({ delta: { role: 'assistant', content: '' } });
    if (closes === 'before the finish') withRole.push(wholeMessage(meaning, this.#habits));
    const choices = withRole.map((piece) => this.#unfinished(this.#choice(index, piece)));
    const { fault } = this.#options;
    if (fault === 'no finish') return choices.length > 0 ? choices : [this.#choice(index, {})];
    return this.#finished(choices, meaning, index);
  }

  #finished(choices: readonly ChoicePiece[], meaning: Meaning, index: number): ChoicePiece[] {
    const { finishAt, closes, trails } = this.#habits;
    if (finishAt === 'none for calls') return [...choices];
    const finish_reason = this.#finishWord(meaning);
    const silent = this.#isText ? { text: '' } : { delta: {} };
    const last = closes === 'beside the finish' ? wholeMessage(meaning, this.#habits) : silent;
    const end = { ...this.#choice(index, last), finish_reason };
    const isWithLast = finishAt === 'last' && choices.length > 0;
    return [
      ...choices.slice(0, isWithLast ? -1 : undefined),
      isWithLast ? { ...choices.at(-1), finish_reason } : end,
      ...(finishAt === 'twice' ? [{ ...this.#choice(index, silent), finish_reason }] : []),
      ...(trails === 'yes' ? [{ ...this.#choice(index, {}), finish_reason: null, content_filter_offsets: {} }] : []),
    ];
  }

  #unfinished(choice: ChoicePiece): ChoicePiece {
    switch (this.#habits.unfinished) {
      case 'null':
        return { ...choice, finish_reason: null };
      case 'left out':
        return choice;
      case 'empty':
        return { ...choice, finish_reason: '' };
      case 'a word':
        return { ...choice, finish_reason: pick(this.#random, notFinished) };
    }
  }

  #finishWord({ calls, finish }: Meaning): string {
    const { fault } = this.#options;
    if (fault === 'a finish that failed') return pick(this.#random, oddFinishes.failed);
    if (this.#habits.finishWord === 'odd') return pick(this.#random, oddFinishes[finish]);
    return finish === 'stop' && calls.length > 0 ? 'tool_calls' : finish;
  }

  #choice(index: number, piece: Piece): ChoicePiece {
    const { choiceIndex, nulls } = this.#habits;
    const own = choiceIndex === 'own' ? { index } : {};
    if (nulls === 'none') return { ...own, ...piece };
    const nothing = this.#isText
      ? { logprobs: null, stop_reason: null }
      : { logprobs: null, stop_reason: null, token_ids: null };
    const { delta } = piece;
    if (delta === undefined || delta === null) return { ...own, ...nothing, ...piece };
    const silent = { content: null, reasoning_content: null, reasoning: null, refusal: null, audio: null };
    return { ...own, ...nothing, delta: { ...silent, tool_calls: null, function_call: null, ...delta } };
  }

  #chunk(choices: readonly Json[]): Json {
    const { envelope, nulls, body } = this.#habits;
    const usage = nulls === 'all' && body === 'events' ? { usage: null } : {};
    const object = this.#isText ? 'text_completion' : 'chat.completion.chunk';
    switch (envelope) {
      case 'openai':
        return { id: 'chatcmpl-1', object, created: 1_790_000_000, model: 'm', choices, ...usage };
      case 'bare':
        return { choices, ...usage };
      case 'odd':
        return { id: null, object: '', created: '2026-11-28', provider: { name: 'p' }, ...usage, choices, error: null };
    }
  }

  #errorBody(): Json | undefined {
    return errorBodies[this.#options.fault ?? ''];
  }

  /** Somewhere before the answer is whole. */
  #insert(events: string[], event: string): void {
    events.splice(Math.floor(this.#random() * Math.max(1, events.length - 2)), 0, event);
  }
}

const isOfChoice = (chunk: Json, index: number): boolean =>
  ((chunk['choices'] as readonly Json[])[0]?.['index'] ??
    ((chunk['choices'] as readonly Json[]).length > 0 ? 0 : undefined)) === index;

const withRoleIn = (piece: Piece, isSaid: boolean): Piece =>
  isSaid && piece.delta !== undefined && piece.delta !== null
    ? { ...piece, delta: { role: 'assistant', ...piece.delta } }
    : piece;

/** What servers put in place of an answer, or in the middle of one. */
const errorBodies: Readonly<Record<string, Json | undefined>> = {
  'an error': { error: { message: 'out of memory', type: 'server_error', code: 500 } },
  'an error by name': { error: 'out of memory' },
  'an old error': { object: 'error', message: 'out of memory', code: 500 },
};
