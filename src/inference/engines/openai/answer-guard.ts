import { Acceptor } from '../../constraints/acceptor.ts';
import { anyJsonGrammar } from '../../constraints/json-text.ts';
import { compileProgram, type Program } from '../../constraints/program.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { hermes } from '../../output-parsers/named-formats.ts';
import { OutputParser } from '../../output-parsers/output-parser.ts';
import { UnboundFault } from '../engine.ts';
import type { Flavor } from './flavors/flavor.ts';

/** A request's bound, which its answer is checked against: the server was asked to keep it, but not every server does. */
export type Bound =
  /** The text of the answer matches. */
  | { readonly type: 'text'; readonly program: Program; readonly ends: Ends; readonly mayThink: boolean }
  /** The answer is a call, and its arguments are an object. */
  | { readonly type: 'call' };

/** What may end a text before its form is complete. */
export interface Ends {
  readonly stopIds: readonly number[];
  /** There are stop sequences, and the server does not report whether one of them matched. */
  readonly byUnreportedStop: boolean;
}

/** Reports that a text could not be followed further, so that it passes unchecked. */
export type ReportUnchecked = () => void;

const anyValue = compileProgram(anyJsonGrammar('value'));
const anyObject = compileProgram(anyJsonGrammar('object'));

/** Returns the request's bound; `undefined`: it has none. `mayThink`: the text may contain a thought between its tags. */
export function boundOf(request: EngineRequest, flavor: Flavor, mayThink: boolean): Bound | undefined {
  const { constraint, toolChoice, effort } = request;
  if (constraint === undefined) {
    const isForced = toolChoice.type === 'required' || toolChoice.type === 'function';
    return isForced && request.tools.length > 0 ? { type: 'call' } : undefined;
  }
  const ends = {
    stopIds: request.tokens?.stopIds ?? [],
    byUnreportedStop: request.stop.length > 0 && !flavor.returnsStop,
  };
  // A server that converts the schema itself may write numbers and blanks differently, which is just as valid.
  if (flavor.convertsItself(constraint.source.type, effort)) {
    const program = constraint.source.type === 'json-object' ? anyObject : anyValue;
    return { type: 'text', program, ends, mayThink };
  }
  const { program } = constraint;
  return program === undefined ? undefined : { type: 'text', program, ends, mayThink };
}

/** Checks the text of one choice against its form. */
export class TextGuard {
  readonly #acceptor: Acceptor;
  readonly #ends: Ends;
  readonly #reportUnchecked: ReportUnchecked;
  readonly #reader: OutputParser | undefined;
  #hasBegun = false;
  #hasThought = false;
  #isUnchecked = false;

  constructor(
    { program, ends, mayThink }: Extract<Bound, { readonly type: 'text' }>,
    reportUnchecked: ReportUnchecked,
  ) {
    this.#acceptor = new Acceptor(program);
    const shape = { thinking: { type: 'marks', marks: { start: '<think>', end: '</think>' } }, calls: hermes } as const;
    this.#reader = mayThink ? new OutputParser({ shape, startsInThought: false, calls: undefined }) : undefined;
    this.#ends = ends;
    this.#reportUnchecked = reportUnchecked;
  }

  /** Marks that the text so far was a thought, which is not bound; blanks after it may count as its layout. */
  thought(): void {
    this.#hasThought = true;
  }

  /** Throws `UnboundFault`. */
  text(piece: string): void {
    if (this.#reader === undefined) this.#answer(piece);
    else this.#read(this.#reader.push(piece));
  }

  #read(events: ReturnType<OutputParser['push']>): void {
    for (const event of events) {
      if (event.type === 'reasoning') this.thought();
      else if (event.type === 'text') this.#answer(event.text);
    }
  }

  #answer(piece: string): void {
    if (this.#isUnchecked || piece === '') return;
    if (!this.#hasBegun && this.#hasThought) this.#acceptor.mayLackBlanks();
    this.#hasBegun = true;
    switch (this.#acceptor.push(piece)) {
      case 'inside':
        return;
      case 'left':
        throw new UnboundFault('the text violates its constraint', true);
      case 'unknown':
        // The server may still keep a form beyond the service's limits; failing the answer would let clients generate without paying.
        this.#isUnchecked = true;
        this.#reportUnchecked();
    }
  }

  /** Stops checking: a refusal, or a text that the server cut because of its content, has no form to keep. */
  release(): void {
    this.#isUnchecked = true;
  }

  /** Ends a text that no limit has cut. `stop`: the server's reason for the end. Throws `UnboundFault`. */
  end(stop: unknown): void {
    if (this.#reader !== undefined) this.#read(this.#reader.end());
    if (this.#isUnchecked || this.#acceptor.isComplete || this.#ends.byUnreportedStop) return;
    if (typeof stop === 'string' && stop !== '') return;
    if (this.#ends.stopIds.some((id) => id === stop)) return;
    throw new UnboundFault('the text ended before its constraint was complete', !this.#hasThought);
  }
}

/** Checks only that the arguments of a forced call are an object, as all arguments are. */
export class ArgumentsGuard {
  readonly #acceptor = new Acceptor(anyObject);

  arguments(piece: string): void {
    if (this.#acceptor.push(piece) === 'left')
      throw new UnboundFault('the arguments of a forced tool call are not an object', true);
  }

  end(): void {
    if (!this.#acceptor.isComplete)
      throw new UnboundFault('the arguments of a forced tool call are not an object', true);
  }
}
