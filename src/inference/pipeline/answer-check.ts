import { schemaAllows } from '../constraints/allows.ts';
import { continuesLast, type EngineRequest, type Tool } from '../../generation/request.ts';
import type { FinishReason, GenerationBatch } from '../../generation/event.ts';
import type { Findings } from '../routing/backend-quality.ts';

/** Bounds what is kept of a choice until its end, and how much is held against a schema. */
const charactersMax = 65_536;
const callsMax = 64;
const stepsMax = 5_000;

/** How models mark a call. Such a mark in a text means that its server did not read the call. */
const callMarks = ['<tool_call', '<|tool_call', '<｜tool▁call', '[TOOL_CALLS]', '<function=', '<|python_tag|>'];

/** Whether there is time for a schema now, and what it took. */
export interface CheckTime {
  mayCheck(nowMs: number): boolean;
  checked(steps: number, nowMs: number): void;
}

interface Call {
  readonly name: string;
  arguments: string;
}

interface Choice {
  text: string;
  readonly calls: Call[];
  finish: FinishReason | undefined;
  /** It ended by a stop sequence, or is longer than what is kept. */
  isPartial: boolean;
}

export const noFindings: Findings = {
  calls: 0,
  callsChecked: 0,
  callsUnreadable: 0,
  callsUnknown: 0,
  callsMisfit: 0,
  callsInText: 0,
  forms: 0,
  formsMisfit: 0,
};

/** Returns a check of the answer; `undefined`: the request asks for neither calls nor JSON. */
export const answerCheckOf = (request: EngineRequest): AnswerCheck | undefined =>
  request.tools.length > 0 || isJson(request) ? new AnswerCheck(request) : undefined;

const isJson = ({ constraint, reasoningForm, prompt }: EngineRequest): boolean =>
  (constraint?.source.type === 'json-schema' || constraint?.source.type === 'json-object') &&
  reasoningForm !== 'inline' &&
  !continuesLast(prompt);

/** Reads an answer with calls or in a form, and says at its end how many of them are as they should be. Nothing of it is kept. */
export class AnswerCheck {
  readonly #request: EngineRequest;
  readonly #choices: (Choice | undefined)[] = [];
  #stepsLeft = 0;

  constructor(request: EngineRequest) {
    this.#request = request;
  }

  read(batch: GenerationBatch): void {
    for (const event of batch) {
      if (event.type === 'text') {
        const choice = this.#choice(event.choice);
        if (choice.text.length < charactersMax) choice.text += event.text;
        else choice.isPartial = true;
      } else if (event.type === 'tool-call') {
        const { calls } = this.#choice(event.choice);
        if (calls.length < callsMax) calls.push({ name: event.name, arguments: '' });
      } else if (event.type === 'tool-arguments') {
        const choice = this.#choice(event.choice);
        const call = choice.calls[event.call];
        if (call === undefined || call.arguments.length > charactersMax) choice.isPartial = true;
        else call.arguments += event.text;
      } else if (event.type === 'finish') {
        const choice = this.#choice(event.choice);
        choice.finish = event.reason;
        choice.isPartial ||= event.stopSequence !== undefined || event.reason === 'length';
      }
    }
  }

  /** To be called once, when the answer is complete. Choices that a limit has cut are left out. */
  findings(time: CheckTime, nowMs: number): Findings {
    const found = { ...noFindings };
    const { tools } = this.#request;
    const budget = time.mayCheck(nowMs) ? stepsMax : 0;
    this.#stepsLeft = budget;
    for (const choice of this.#choices) {
      if (choice === undefined || choice.isPartial || choice.finish === undefined) continue;
      for (const call of choice.calls) this.#call(call, tools, found);
      if (choice.calls.length > 0) continue;
      if (tools.length > 0 && callMarks.some((mark) => choice.text.includes(mark))) {
        found.calls++;
        found.callsInText++;
      }
      if (isJson(this.#request)) this.#form(choice.text, found);
    }
    if (this.#stepsLeft < budget) time.checked(budget - this.#stepsLeft, nowMs);
    return found;
  }

  #call(call: Call, tools: readonly Tool[], found: Mutable): void {
    found.calls++;
    const tool = tools.find(({ name }) => name === call.name);
    // Servers write no arguments at all where a function has none.
    const value = parsed(call.arguments.trim() === '' ? '{}' : call.arguments);
    if (tool === undefined) found.callsUnknown++;
    else if (typeof value !== 'object' || value === null || Array.isArray(value)) found.callsUnreadable++;
    else if (tool.parameters !== undefined) {
      const fits = this.#fits(tool.parameters, value);
      if (fits === undefined) return;
      found.callsChecked++;
      if (!fits) found.callsMisfit++;
    }
  }

  #form(text: string, found: Mutable): void {
    const source = this.#request.constraint?.source;
    const value = parsed(text);
    found.forms++;
    if (value === undefined) found.formsMisfit++;
    else if (source?.type === 'json-schema') {
      if (this.#fits(source.schema, value) === false) found.formsMisfit++;
    } else if (typeof value !== 'object') found.formsMisfit++;
  }

  #fits(schema: unknown, value: unknown): boolean | undefined {
    if (this.#stepsLeft <= 0) return undefined;
    const { allows, steps } = schemaAllows(schema, value, this.#stepsLeft);
    this.#stepsLeft -= steps;
    return allows;
  }

  #choice(index: number): Choice {
    return (this.#choices[index] ??= { text: '', calls: [], finish: undefined, isPartial: false });
  }
}

type Mutable = { -readonly [Key in keyof Findings]: Findings[Key] };

/** `undefined`: it is not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
