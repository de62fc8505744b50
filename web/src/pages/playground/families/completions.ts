import { textOf } from '../conversation.ts';
import { formatOf, readError, readUsage } from './chat.ts';
import { at, sent, stringAt } from './family.ts';
import type { Delta, Family } from './family.ts';

/** `POST /v1/completions`: a text that the model continues. The conversation, joined, is the text so far. */
export const completions: Family = {
  name: 'completions',
  title: 'Completions',
  path: '/v1/completions',
  body: ({ model, stream, turns, format, parameters }) => {
    const { effort: _, ...others } = parameters;
    return sent({
      model,
      prompt: turns.map((turn) => (turn.kind === 'user' ? turn.text : textOf(turn))).join(''),
      stream: stream || undefined,
      ...others,
      response_format: formatOf(format),
    });
  },
  readEvent: (_, json) => read(json),
  readWhole: (json) => read(json),
};

function read(json: unknown): readonly Delta[] {
  const deltas: Delta[] = [];
  const choice = at(json, 'choices', 0);
  const text = stringAt(choice, 'text');
  if (text) deltas.push({ kind: 'text', text });
  const finish = stringAt(choice, 'finish_reason');
  if (finish !== undefined) deltas.push({ kind: 'finish', reason: finish });
  return [...deltas, ...readUsage(json), ...readError(json)];
}
