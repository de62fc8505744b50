import type { EventSink, ParsedEvent } from './parsed-event.ts';
import { blankRun, Malformed, type Marks, type Reading, type Source } from './source.ts';

export interface CallRules {
  /** The offered tools, by name. A call of anything else is text: clients fail on unknown names. */
  readonly tools: ReadonlyMap<string, OfferedTool>;
  /** The answer ends after this many calls (`parallel_tool_calls: false` is 1). */
  readonly callsMax: number;
  /**
   * What a grammar enforces: the whole answer is calls, the text after a call's opening mark is, or nothing. Text that must be a call is
   * never emitted as text, even if it is cut before any of the call can be reported.
   */
  readonly bound: 'answer' | 'marked' | 'nothing';
}

export interface OfferedTool {
  /** JSON Schema of the arguments. */
  readonly parameters: unknown;
}

/** The calls of one answer. */
export class Calls {
  readonly #source: Source;
  readonly #sink: EventSink;
  readonly #rules: CallRules;
  /** The current call, until its arguments begin: a call that is cut before that was never written. */
  #pending: string | undefined;
  #hasArguments = false;
  #finished = 0;
  readonly #isTrial: boolean;

  /** `isTrial`: the text may still turn out to be no call after its end, so the source's record of it goes on. */
  constructor(source: Source, sink: EventSink, rules: CallRules, isTrial = false) {
    this.#isTrial = isTrial;
    this.#source = source;
    this.#sink = sink;
    this.#rules = rules;
    if (rules.bound === 'answer') sink.dropText();
  }

  /** Number of calls with complete arguments. */
  get finished(): number {
    return this.#finished;
  }

  get announced(): number {
    return this.#sink.calls;
  }

  isOffered(name: string): boolean {
    return this.#rules.tools.has(name);
  }

  /** Whether the schema says that a parameter is a string; without a type it is not. */
  isText(name: string, parameter: string): boolean {
    const properties = member(this.#rules.tools.get(name)?.parameters, 'properties');
    return member(member(properties, parameter), 'type') === 'string';
  }

  /** Records that an opening mark of calls was read. */
  marked(mark: string, trigger: string | undefined): void {
    if (this.#rules.bound === 'marked' && mark === trigger) this.#sink.dropText();
  }

  /** The text being read is a call of this function. It is announced with the first of its arguments, or at its end. */
  begin(name: string): void {
    if (!this.isOffered(name)) throw new Malformed();
    this.#pending = name;
    this.#hasArguments = false;
  }

  readonly arguments = (text: string): void => {
    if (text === '') return;
    this.#announce();
    this.#hasArguments = true;
    this.#sink.arguments(text);
  };

  /** Whether the call has been announced, when the text has ended. */
  get isAnnounced(): boolean {
    return this.#pending === undefined;
  }

  /** Ends the call. Missing arguments become an empty object, because clients parse them. */
  finish(): void {
    this.#announce();
    if (!this.#hasArguments) this.#sink.arguments('{}');
    this.#finished++;
    if (this.#finished >= this.#rules.callsMax) throw new Enough();
    if (!this.#isTrial) this.#source.record();
  }

  /** Takes over the calls of a trial, as many as are wanted. */
  adopt(events: readonly ParsedEvent[]): void {
    for (const event of events) {
      if (event.type === 'tool-arguments') this.#sink.arguments(event.text);
      if (event.type !== 'tool-call') continue;
      if (this.#finished++ >= this.#rules.callsMax) throw new Enough();
      this.#sink.call(event.name);
    }
  }

  /** The text since `record` is a call, and can no longer be emitted as text. */
  #announce(): void {
    if (this.#pending === undefined) return;
    if (!this.#isTrial) this.#source.settle();
    this.#sink.call(this.#pending);
    this.#pending = undefined;
  }
}

function member(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Readonly<Record<string, unknown>>)[name];
}

/** No more calls are wanted, and nothing else may follow. */
export class Enough extends Error {
  override readonly name = 'Enough';
}

/**
 * Reads an answer of text and calls. What begins like a call but is not one is emitted as text, and blanks around calls are not text.
 * `trigger`: the mark after which a grammar may apply; `already`: blanks that were already read.
 */
export function* readAnswer(
  source: Source,
  sink: EventSink,
  calls: Calls,
  marks: Marks,
  readCalls: (source: Source, calls: Calls, mark: string) => Reading,
  trigger: string | undefined,
  already = '',
): Reading {
  let before = already;
  for (;;) {
    let blanks = before + (yield* readBlanks(source, sink));
    before = '';
    const mark = yield* source.until(marks, (text) => {
      sink.text(blanks + text);
      blanks = '';
    });
    if (mark === undefined) {
      if (calls.announced === 0) sink.text(blanks);
      return;
    }
    calls.marked(mark, trigger);
    yield* attempt(source, sink, calls, blanks, mark, readCalls(source, calls, mark));
  }
}

/** Reads calls; what is not a call after all is emitted as text. */
export function* attempt(
  source: Source,
  sink: EventSink,
  calls: Calls,
  blanks: string,
  mark: string,
  reading: Reading,
): Reading {
  const { announced } = calls;
  source.record(mark);
  try {
    yield* reading;
    source.settle();
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    const rest = source.settle();
    if (calls.announced === announced) sink.text(blanks + rest);
    // Cut off after the arguments: the missing part, or half a mark, has no content.
    else if (source.isCut || (yield* source.peek()) === undefined) source.skip();
    else sink.text(rest);
  }
}

/** Reads blanks, which are text only if text follows; too many to be layout are text anyway. */
export function* readBlanks(source: Source, sink: EventSink): Reading<string> {
  let blanks = '';
  let length = 0;
  yield* source.while(blankRun, (text) => {
    length += text.length;
    blanks += text;
    if (length <= layoutBlanksMax) return;
    sink.text(blanks);
    blanks = '';
  });
  return blanks;
}

const layoutBlanksMax = 64;
