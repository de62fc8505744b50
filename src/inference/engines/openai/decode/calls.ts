import type { FinishReason, GenerationEvent } from '../../../../generation/event.ts';
import { UnboundFault } from '../../engine.ts';
import { ArgumentsGuard } from '../answer-guard.ts';
import { StreamFault } from '../sse.ts';
import { ArgumentsText, isBlank } from './arguments-text.ts';
import type { ChoiceEvents } from './choice-events.ts';
import { Halves } from './halves.ts';
import type { DecoderOptions } from './options.ts';
import { belongs, fragmentOf, grownName, mayGrow, type Fragment, type KnownCall } from './which-call.ts';

const toolCallsMax = 256;
const toolNameCharactersMax = 1_024;
const earlyArgumentsCharactersMax = 64 * 1024;
/** Maximum text held back behind a call whose arguments are incomplete. */
const heldCharactersMax = 1024 * 1024;

/**
 * Assembles the tool calls of one choice from their fragments. Calls are emitted one after the other in the order in which they began,
 * together with anything between them: text or another call that begins before a call's arguments are whole waits for their end, because
 * API families with blocks cannot return to an earlier one.
 */
export class ChoiceCalls {
  readonly #events: ChoiceEvents;
  readonly #options: DecoderOptions;
  readonly #ids: CallIds;
  /** The last call at each of the backend's indexes. */
  readonly #byIndex = new Map<number, CallState>();
  readonly #all: CallState[] = [];
  /** The call being emitted, and what waits for its end. */
  readonly #queue: (CallState | GenerationEvent[])[] = [];
  #heldCharacters = 0;
  #given = 0;
  /** A second call has begun, although the answer ends with the first. */
  #isBeyondFirst = false;

  constructor(events: ChoiceEvents, ids: CallIds, options: DecoderOptions) {
    this.#events = events;
    this.#options = options;
    this.#ids = ids;
  }

  get count(): number {
    return this.#all.length;
  }

  /**
   * Reads one entry of a list of `count`. `isWhole`: the list is from a complete message, whose entries are whole calls. Returns `false` if
   * the answer ends here, with its first call.
   */
  read(raw: unknown, position: number, count: number, isWhole: boolean): boolean {
    const fragment = fragmentOf(raw);
    const call = this.#pointedAt(fragment, position, count);
    if (this.#events.isFinished) {
      if (call !== undefined && isBlank(fragment.arguments)) return true;
      throw new StreamFault('text after the finish reason');
    }
    const isNew = call === undefined || (isWhole && fragment.name !== '');
    const belonging = isNew ? 'begins' : belongs(call, fragment, this.#tools);
    if (belonging === 'continues') this.#continue(call!, fragment);
    else if (belonging === 'unsure') {
      this.#continue(call!, { ...fragment, id: undefined });
      if (fragment.id !== undefined || call!.next === undefined) call!.next = { ...fragment, arguments: '' };
    }
    if (belonging === 'begins') this.#beginAfter(call, fragment);
    this.#advance();
    return !this.#isBeyondFirst || !this.#isFirstOver(fragment);
  }

  /** Reads the calls of a message that closes a streamed answer, and adds what the deltas have not said. Returns the same as `read`. */
  close(list: readonly unknown[]): boolean {
    for (const [position, raw] of list.entries()) {
      const fragment = fragmentOf(raw);
      const same = this.#all.find(
        (call) => call.id !== undefined && call.id === fragment.id && call.name === fragment.name,
      );
      const call = same ?? (this.#all[position]?.name === fragment.name ? this.#all[position] : undefined);
      if (call !== undefined) {
        const written = fragment.arguments;
        const rest = call.arguments.isEmpty ? written : call.arguments.restOf(written);
        this.#continue(call, { ...fragment, arguments: rest });
        this.#advance();
      } else if (!this.read(raw, position, list.length, true)) return false;
    }
    return true;
  }

  /** Returns whether the event has to wait for the end of a call. */
  holds(event: GenerationEvent, characters: number): boolean {
    const last = this.#queue.at(-1);
    if (last === undefined) return false;
    this.#hold(characters);
    if (Array.isArray(last)) {
      last.push(event);
      return true;
    }
    if (this.#queue.length === 1 && isOver(last)) {
      last.isOver = true;
      this.#queue.pop();
      this.#heldCharacters = 0;
      return false;
    }
    this.#queue.push([event]);
    return true;
  }

  /** Ends the fragments. Throws if a call that was not cut has no name. */
  end(reason: FinishReason): void {
    for (const call of [...this.#all]) this.#settleNext(call);
    if (reason !== 'length' && this.#all.some(({ name }) => name === '')) {
      throw new StreamFault('expected a name in a tool call');
    }
  }

  /** Checks that a forced call is present and whole. */
  checkWhole(): void {
    if (this.#options.bound?.type !== 'call') return;
    if (this.#all.length === 0) throw new UnboundFault('the forced tool call is missing', false);
    for (const call of this.#all) call.guard?.end();
  }

  /** Emits everything that waits. Clients parse arguments, so empty ones become an object without fields, unless the call was cut. */
  flush(reason: FinishReason): void {
    const last = this.#queue.findLast((one): one is CallState => !Array.isArray(one));
    for (const one of this.#queue.splice(0)) {
      if (Array.isArray(one)) for (const event of one) this.#events.give(event);
      else if (one.name !== '') {
        const isCut = reason === 'length' && one === last;
        const rest = one.halves.end() + (one.arguments.isEmpty && !isCut ? '{}' : '');
        this.#open(one);
        this.#arguments(one, rest);
      }
    }
  }

  get #tools(): readonly string[] {
    return this.#options.toolNames ?? noTools;
  }

  /** Returns the call that a fragment refers to: by its index, else by its id, else the last one. */
  #pointedAt({ index, id, name }: Fragment, position: number, count: number): CallState | undefined {
    if (index !== undefined) return this.#byIndex.get(index) ?? this.#adopted(index);
    const known = id === undefined ? undefined : this.#all.findLast((call) => call.id === id);
    if (known !== undefined) return known;
    // A list as long as the list of calls refers to them in order.
    const isRound = id === undefined && name === '' && count > 1 && count === this.#all.length;
    const there = isRound ? this.#all[position] : undefined;
    return there?.arguments.isWhole === false ? there : this.#all.at(-1);
  }

  /** Returns the call at this place, if its first fragment had no index. */
  #adopted(index: number): CallState | undefined {
    const call = this.#all[index];
    if (call === undefined || call.index !== undefined) return undefined;
    call.index = index;
    this.#byIndex.set(index, call);
    return call;
  }

  /** Begins a call for a fragment that belongs to no call, or not to the one it refers to. */
  #beginAfter(call: CallState | undefined, fragment: Fragment): void {
    if (this.#options.takesOneCall && this.#all.length > 0) {
      this.#isBeyondFirst = true;
      return;
    }
    const announced = call?.next;
    if (call === undefined || announced === undefined) return this.#begin(fragment);
    const { name, id } = fragment;
    const isSameName = name === '' || name === announced.name;
    const whole = isSameName ? announced.name : grownName(announced.name, name, this.#tools);
    const isOld = announced.id === call.id && id !== undefined && id !== call.id;
    if (whole === undefined || isOld) this.#settleNext(call);
    call.next = undefined;
    this.#begin(whole === undefined || isOld ? fragment : { ...fragment, name: whole, id: announced.id ?? id });
  }

  /** Settles a name without arguments after a call of the same name: with a new id it is a call, otherwise a repeated name. */
  #settleNext(call: CallState): void {
    const { next, id, hasSeveralIds } = call;
    call.next = undefined;
    if (next?.id !== undefined && next.id !== id && !hasSeveralIds && !this.#options.takesOneCall) this.#begin(next);
  }

  #begin(fragment: Fragment): void {
    if (this.#all.length >= toolCallsMax) throw new StreamFault('there are too many tool calls');
    const { index } = fragment;
    const call = newCallState(index);
    if (this.#all.length === 0) this.#events.holdBack(this);
    this.#all.push(call);
    this.#queue.push(call);
    if (index !== undefined) this.#byIndex.set(index, call);
    this.#continue(call, fragment);
  }

  #continue(call: CallState, { id, name, arguments: written }: Fragment): void {
    call.id ??= id;
    if (id !== undefined && id !== call.id) call.hasSeveralIds = true;
    if (call.isOver) {
      // Text after whole arguments, with something else in between, cannot belong to them unless it is layout.
      if (isBlank(written)) call.arguments.push(written);
      return;
    }
    if (call.name === '') call.name = name;
    else if (name !== '' && call.arguments.isEmpty) call.name = grownName(call.name, name, this.#tools) ?? call.name;
    if (call.name.length > toolNameCharactersMax) throw new StreamFault('the name of a tool is too long');
    const piece = call.halves.join(written);
    call.arguments.push(piece);
    if (piece !== '' && this.#options.bound?.type === 'call') (call.guard ??= new ArgumentsGuard()).arguments(piece);
    if (call !== this.#queue[0]) {
      call.held += piece;
      this.#hold(piece.length);
    } else if (call.name === '') {
      call.held += piece;
      if (call.held.length > earlyArgumentsCharactersMax) throw new StreamFault('expected a name in a tool call');
    } else {
      if (call.number === undefined && !this.#isNamed(call)) return;
      this.#open(call);
      this.#arguments(call, piece);
    }
  }

  #isNamed({ name, arguments: said }: CallState): boolean {
    return name !== '' && (!said.isEmpty || !mayGrow(name, this.#tools));
  }

  /** Moves on from a call whose arguments are whole, if anything waits. */
  #advance(): void {
    while (this.#queue.length > 1) {
      const first = this.#queue[0]!;
      if (Array.isArray(first)) for (const event of first) this.#events.give(event);
      else if (isOver(first)) first.isOver = true;
      else return;
      this.#queue.shift();
      const next = this.#queue[0]!;
      if (!Array.isArray(next) && this.#isNamed(next)) this.#open(next);
    }
    const [only] = this.#queue;
    if (Array.isArray(only)) {
      this.#queue.pop();
      for (const event of only) this.#events.give(event);
    }
    if (this.#queue.length <= 1) this.#heldCharacters = 0;
  }

  /** Emits a call's beginning and its held arguments. */
  #open(call: CallState): void {
    if (call.number === undefined) {
      const { choice } = this.#events;
      const number = this.#given++;
      call.number = number;
      const name = call.name.toWellFormed();
      const id = this.#ids.idFor(call.id, choice, number);
      this.#events.grow('tool-call', name);
      this.#events.give({ type: 'tool-call', choice, call: number, id, name });
    }
    const { held } = call;
    call.held = '';
    this.#arguments(call, held);
  }

  #arguments({ number }: CallState, piece: string): void {
    if (piece === '') return;
    this.#events.grow('tool-arguments', piece);
    this.#events.give({ type: 'tool-arguments', choice: this.#events.choice, call: number!, text: piece });
  }

  #hold(characters: number): void {
    this.#heldCharacters += characters;
    if (this.#heldCharacters > heldCharactersMax)
      throw new StreamFault('too much follows a tool call that does not end');
  }

  /** Returns whether the first call is over: it is whole, or has no arguments while the second one already has some. */
  #isFirstOver(fragment: Fragment): boolean {
    const first = this.#all[0]!;
    if (first.name === '') return false;
    return first.arguments.isWhole || (first.arguments.isEmpty && fragment.arguments !== '');
  }
}

interface CallState extends KnownCall {
  /** The backend's index. */
  index: number | undefined;
  /** The call's number in the events, once its beginning has been emitted. */
  number: number | undefined;
  id: string | undefined;
  hasSeveralIds: boolean;
  name: string;
  /** Arguments that have not been emitted yet. */
  held: string;
  readonly halves: Halves;
  guard: ArgumentsGuard | undefined;
  next: Fragment | undefined;
  /** The call is whole, and something else has begun. */
  isOver: boolean;
}

const noTools: readonly string[] = [];

const isOver = ({ name, arguments: said }: CallState): boolean => name !== '' && said.isWhole;

const newCallState = (index: number | undefined): CallState => ({
  index,
  number: undefined,
  id: undefined,
  hasSeveralIds: false,
  name: '',
  arguments: new ArgumentsText(),
  held: '',
  halves: new Halves(),
  guard: undefined,
  next: undefined,
  isOver: false,
});

/** The ids of an answer's calls, which are distinct: results are matched by them (§4.2.2(2)). */
export class CallIds {
  readonly #requestId: string;
  readonly #given = new Set<string>();

  constructor(requestId: string) {
    this.#requestId = requestId;
  }

  /** Returns an id in the form that clients expect: `call_…`, short, visible ASCII. */
  idFor(raw: string | undefined, choice: number, call: number): string {
    const own = `call_${this.#requestId}${choice}_${call}`;
    const id = raw === undefined || !/^[\x21-\x7e]{1,200}$/.test(raw) ? own : withPrefix(raw);
    const distinct = this.#given.has(id) ? own : id;
    this.#given.add(distinct);
    return distinct;
  }
}

/** vLLM's ids are `chatcmpl-tool-…`. */
const withPrefix = (id: string): string => (id.startsWith('call_') ? id : `call_${id.replace(/^chatcmpl-tool-/, '')}`);
