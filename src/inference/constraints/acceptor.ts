import { step, type Program } from './program.ts';

/** `left`: no text of the grammar begins like this. `unknown`: the grammar is too ambiguous to follow within the bounds. */
export type Verdict = 'inside' | 'left' | 'unknown';

/**
 * Bounds on steps: in a burst, as for the first character of a large `enum`, and per character in the long run. For 1,314 instances of the
 * 392 real schemas of docs/constraints.md, the verdicts match llama.cpp's, all within the bounds, at 12 µs a character on a busy core.
 */
const stepsAtOnce = 100_000;
const stepsPerCharacter = 250;

/** Stands for bytes that are not (yet) a complete character. */
const replacement = 0xfffd;
/** Index of the end step in every program. */
const endAt = 1;

/**
 * Follows a text through a grammar as it arrives, along all paths in parallel. It keeps the set of places in the grammar, each with its
 * enclosing rules; rules that begin at the same position share a frame, so the number of ways to read a text does not multiply. If it
 * exceeds its bounds, it gives up and says so.
 */
export class Acceptor {
  readonly #code: Program;
  #verdict: Verdict = 'inside';
  /** Places before the next character, and the frame of each. */
  #places: number[] = [];
  #frames: Frame[] = [];
  #isComplete = false;
  /** Number of characters read. */
  #position = 0;
  #stepsLeft = stepsAtOnce;
  /** Frames of the rules that begin at this position. */
  readonly #begun = new Map<number, Frame>();
  readonly #todoPlaces: number[] = [];
  readonly #todoFrames: Frame[] = [];
  /** The first half of a surrogate pair whose other half comes with the next piece. */
  #half = '';
  /** The last character was incomplete, possibly because the answer was cut there. */
  #isBroken = false;

  constructor(program: Program) {
    this.#code = program;
    this.#enter(program[0]!, new Frame(0));
  }

  /** Whether the text so far is a complete text of the grammar. */
  get isComplete(): boolean {
    return this.#isComplete && !this.#isBroken && this.#half === '';
  }

  push(piece: string): Verdict {
    let text = piece;
    if (this.#half !== '') {
      text = this.#half + piece;
      this.#half = '';
    }
    for (let at = 0; at < text.length && this.#verdict === 'inside';) {
      const point = text.codePointAt(at)!;
      at += point > 0xffff ? 2 : 1;
      if (at === text.length && point >= 0xd800 && point <= 0xdbff) this.#half = text.slice(-1);
      else this.#take(point);
    }
    if (this.#verdict !== 'inside') this.#forget();
    return this.#verdict;
  }

  /** Accepts texts without the leading blanks of the grammar. Must be called before the first character. */
  mayLackBlanks(): void {
    const places = [...this.#places];
    const frames = [...this.#frames];
    let isComplete = this.#isComplete;
    for (let blanks = 0; blanks < blanksMax && this.#places.length > 0; blanks++) {
      this.#advance((at) => [9, 10, 13, 32].some((point) => this.#takes(at, point)));
      for (const place of this.#places) places.push(place);
      for (const frame of this.#frames) frames.push(frame);
      isComplete ||= this.#isComplete;
    }
    [this.#places, this.#frames, this.#isComplete] = [places, frames, isComplete];
  }

  #take(point: number): void {
    if (this.#isBroken) {
      this.#verdict = 'left';
      return;
    }
    this.#stepsLeft = Math.min(this.#stepsLeft + stepsPerCharacter, stepsAtOnce);
    const [places, frames, wasComplete] = [this.#places, this.#frames, this.#isComplete];
    this.#advance((at) => this.#takes(at, point));
    if (this.#stepsLeft < 0) this.#verdict = 'unknown';
    else if (this.#places.length === 0 && !this.#isComplete) {
      if (point !== replacement) this.#verdict = 'left';
      else [this.#places, this.#frames, this.#isComplete, this.#isBroken] = [places, frames, wasComplete, true];
    }
  }

  /** Advances by one character. */
  #advance(takes: (at: number) => boolean): void {
    const [places, frames] = [this.#places, this.#frames];
    this.#places = [];
    this.#frames = [];
    this.#isComplete = false;
    this.#position++;
    this.#begun.clear();
    this.#stepsLeft -= places.length;
    for (let i = 0; i < places.length && this.#stepsLeft >= 0; i++) {
      const at = places[i]!;
      if (takes(at)) this.#enter(at + 2, frames[i]!);
    }
  }

  #takes(at: number, point: number): boolean {
    const code = this.#code;
    const operand = code[at + 1]!;
    if (code[at] === step.character) return operand === point;
    let low = 0;
    let high = code[operand]! - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const range = operand + 1 + 2 * middle;
      if (point < code[range]!) high = middle - 1;
      else if (point > code[range + 1]!) low = middle + 1;
      else return true;
    }
    return false;
  }

  /** Adds all places before a character that can be reached from here without one. */
  #enter(from: number, of: Frame): void {
    const code = this.#code;
    this.#todo(from, of);
    while (this.#todoPlaces.length > 0 && this.#stepsLeft >= 0) {
      const at = this.#todoPlaces.pop()!;
      const frame = this.#todoFrames.pop()!;
      this.#stepsLeft--;
      if (!frame.isNew(at, this.#position)) continue;
      switch (code[at]!) {
        case step.character:
        case step.set:
          this.#places.push(at);
          this.#frames.push(frame);
          break;
        case step.jump:
          this.#todo(code[at + 1]!, frame);
          break;
        case step.ways:
          for (let way = code[at + 1]!; way > 0; way--) this.#todo(code[at + 1 + way]!, frame);
          break;
        case step.rule:
          this.#call(code[at + 1]!, at + 2, frame);
          break;
        case step.end:
          this.#return(frame);
          break;
      }
    }
    this.#todoPlaces.length = 0;
    this.#todoFrames.length = 0;
  }

  #todo(at: number, frame: Frame): void {
    this.#todoPlaces.push(at);
    this.#todoFrames.push(frame);
  }

  #call(start: number, after: number, caller: Frame): void {
    let callee = this.#begun.get(start);
    if (callee === undefined) {
      callee = new Frame(this.#position);
      this.#begun.set(start, callee);
      this.#todo(start, callee);
    }
    // A caller that would only end afterwards is skipped: a list that refers to itself at its end takes no extra room.
    if (this.#isEnd(after) && caller.callers.length > 0) {
      if (caller.bornAt < this.#position) {
        caller.callers.forEach((frame, i) => this.#link(callee, caller.places[i]!, frame));
        return;
      }
      return this.#link(callee, endAt, caller);
    }
    this.#link(callee, after, caller);
  }

  #isEnd(from: number): boolean {
    let at = from;
    // Jumps go forward, except in loops, which begin with a choice.
    while (this.#code[at] === step.jump) at = this.#code[at + 1]!;
    return this.#code[at] === step.end;
  }

  #link(callee: Frame, after: number, caller: Frame): void {
    this.#stepsLeft--;
    if (!callee.addCaller(after, caller)) return;
    // The callee has already ended here, without a character.
    if (callee.endedAt === this.#position) this.#todo(after, caller);
  }

  #return(frame: Frame): void {
    frame.endedAt = this.#position;
    if (frame.callers.length === 0) this.#isComplete = true;
    frame.callers.forEach((caller, i) => this.#todo(frame.places[i]!, caller));
  }

  #forget(): void {
    this.#places = [];
    this.#frames = [];
    this.#begun.clear();
  }
}

/** Blanks that the reasoning parser may have removed from the beginning of an answer. */
const blanksMax = 16;

const fewCallers = 8;

/** A rule begun at one position of the text, shared by all callers that began it there. */
class Frame {
  readonly bornAt: number;
  /** Where each caller continues. */
  readonly places: number[] = [];
  readonly callers: Frame[] = [];
  endedAt = -1;
  readonly #seen = new Set<number>();
  #seenAt = -1;
  /** For a rule with many callers at one position, such as the one for leading blanks. */
  #known: Map<Frame, Set<number>> | undefined;

  constructor(bornAt: number) {
    this.bornAt = bornAt;
  }

  /** Whether a place in the rule has not been reached yet at this position of the text. */
  isNew(at: number, position: number): boolean {
    if (this.#seenAt !== position) {
      this.#seenAt = position;
      this.#seen.clear();
    }
    if (this.#seen.has(at)) return false;
    this.#seen.add(at);
    return true;
  }

  /** Returns whether the caller is a new one. */
  addCaller(place: number, caller: Frame): boolean {
    if (this.callers.length < fewCallers) {
      for (let i = 0; i < this.callers.length; i++)
        if (this.callers[i] === caller && this.places[i] === place) return false;
    } else {
      this.#known ??= this.#placesByCaller();
      const known = this.#known.get(caller);
      if (known?.has(place) === true) return false;
      if (known === undefined) this.#known.set(caller, new Set([place]));
      else known.add(place);
    }
    this.places.push(place);
    this.callers.push(caller);
    return true;
  }

  #placesByCaller(): Map<Frame, Set<number>> {
    const known = new Map<Frame, Set<number>>();
    this.callers.forEach((caller, i) => known.set(caller, (known.get(caller) ?? new Set()).add(this.places[i]!)));
    return known;
  }
}
