import assert from 'node:assert/strict';

import type { WireChunk, WireToolCallDelta } from './chat-wire.ts';

/** A whole answer as a client of chat completions knows it. */
export interface ReadChoice {
  readonly index: number;
  content: string;
  reasoning: string;
  readonly toolCalls: { id: string; type: string; name: string; arguments: string }[];
  readonly logprobs: unknown[];
  finishReason: string | null;
}

export interface ReadAnswer {
  readonly choices: ReadChoice[];
  usage: unknown;
  error: unknown;
}

/**
 * Reads a stream of chat completions as clients do, and on the way holds it to specification part 6: framing, the role
 * first, nothing after a finish, the finish with an empty delta, one usage in a last chunk without choices, then [DONE].
 */
export function readChatStream(sse: string): ReadAnswer {
  const events = eventsOf(sse);
  assert.equal(events.pop(), '[DONE]', 'the stream ends with [DONE]');
  const answer: ReadAnswer = { choices: [], usage: undefined, error: undefined };
  for (const data of events) {
    assert.equal(answer.usage ?? answer.error, undefined, 'nothing follows the usage or an error but [DONE]');
    const chunk = JSON.parse(data) as WireChunk;
    if (chunk.error !== undefined) {
      answer.error = chunk.error;
      continue;
    }
    assert.equal(chunk.object, 'chat.completion.chunk');
    if (chunk.usage !== undefined) {
      assert.deepEqual(chunk.choices, [], 'usage stands in a chunk without choices');
      answer.usage = chunk.usage;
    } else {
      assert.equal(chunk.choices.length, 1);
    }
    for (const piece of chunk.choices) readPiece(answer, piece);
  }
  return answer;
}

function readPiece(
  answer: ReadAnswer,
  { index, delta, logprobs, finish_reason: finishReason }: WireChunk['choices'][number],
): void {
  let choice = answer.choices.find((candidate) => candidate.index === index);
  if (choice === undefined) {
    assert.equal(delta.role, 'assistant', 'the first chunk of a choice sets the role');
    choice = { index, content: '', reasoning: '', toolCalls: [], logprobs: [], finishReason: null };
    answer.choices.push(choice);
  } else {
    assert.equal(delta.role, undefined, 'the role is said once');
  }
  assert.equal(choice.finishReason, null, 'nothing of a choice follows its finish');
  if (finishReason !== null) {
    assert.deepEqual(delta, {}, 'a finish has an empty delta');
    choice.finishReason = finishReason;
  }
  choice.content += delta.content ?? '';
  choice.reasoning += delta.reasoning_content ?? '';
  choice.logprobs.push(...(logprobs?.content ?? []));
  for (const piece of delta.tool_calls ?? []) readToolCall(choice, piece);
}

function readToolCall(choice: ReadChoice, piece: WireToolCallDelta): void {
  const known = choice.toolCalls[piece.index];
  if (known === undefined) {
    assert.equal(piece.index, choice.toolCalls.length, 'calls are opened in order');
    assert.ok(
      piece.id !== undefined && piece.type === 'function' && piece.function.name !== undefined,
      'the first delta of a call names it',
    );
    choice.toolCalls.push({
      id: piece.id,
      type: piece.type,
      name: piece.function.name,
      arguments: piece.function.arguments ?? '',
    });
    return;
  }
  assert.deepEqual(
    [piece.id, piece.type, piece.function.name],
    [undefined, undefined, undefined],
    'later deltas only add arguments',
  );
  known.arguments += piece.function.arguments ?? '';
}

/** Each event is one line `data: …` and a blank line, ended by line feeds alone. */
function eventsOf(sse: string): string[] {
  assert.ok(sse.endsWith('\n\n'), 'the last event is closed');
  assert.ok(!sse.includes('\r'), 'line ends are line feeds');
  return sse
    .slice(0, -2)
    .split('\n\n')
    .map((event) => {
      assert.ok(
        event.startsWith('data: ') && !event.includes('\n'),
        `an event is one data line: ${JSON.stringify(event)}`,
      );
      return event.slice('data: '.length);
    });
}

/** The same view of a whole answer (specification §2.5). */
export function readChatCompletion(json: string): ReadAnswer {
  const whole = JSON.parse(json) as WholeAnswer;
  assert.equal(whole.object, 'chat.completion');
  const choices = whole.choices.map(({ index, message, logprobs, finish_reason: finishReason }): ReadChoice => {
    assert.equal(message.role, 'assistant');
    assert.notDeepEqual(message.tool_calls, [], 'no calls are null, not an empty list');
    return {
      index,
      content: message.content ?? '',
      reasoning: message.reasoning_content ?? '',
      toolCalls: (message.tool_calls ?? []).map((call) => ({ id: call.id, type: call.type, ...call.function })),
      logprobs: [...(logprobs?.content ?? [])],
      finishReason,
    };
  });
  return { choices, usage: whole.usage, error: undefined };
}

interface WholeAnswer {
  readonly object: string;
  readonly choices: readonly {
    readonly index: number;
    readonly message: {
      readonly role: string;
      readonly content: string | null;
      readonly reasoning_content: string | null;
      readonly tool_calls:
        | readonly {
            readonly id: string;
            readonly type: string;
            readonly function: { readonly name: string; readonly arguments: string };
          }[]
        | null;
    };
    readonly logprobs: { readonly content: readonly unknown[] } | null;
    readonly finish_reason: string;
  }[];
  readonly usage: unknown;
}
