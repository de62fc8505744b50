import Type from 'typebox';
import { answerShares, type AnswerCounts, type WorseState } from '../config/backend-state.ts';
import { nullable, secondsOf } from './wire.ts';

const count = (description: string) => Type.Integer({ description });
const share = (description: string) =>
  Type.Union([Type.Number({ minimum: 0, maximum: 1 }), Type.Null()], {
    description: `${description}; null: there were none.`,
  });

/** What the answers of a backend were like, without content. */
export const qualitySchema = () =>
  nullable(
    Type.Object(
      {
        answered: count('Requests that it answered.'),
        failed: count('Requests that it failed by its own fault.'),
        tool_calls: count('Tool calls in its answers.'),
        tool_calls_json: share('The part of them whose arguments are a JSON object, and that are not left in the text'),
        tool_calls_known: share('The part of them whose function was offered'),
        tool_calls_fit: share('The part of them that fits the schema, of those that were held against it'),
        json_answers: count('Answers that had to be JSON.'),
        json_answers_fit: share('The part of them that fits what was asked for'),
        cached: share('The part of its prompts that was in its cache'),
        tokens_per_second: Type.Union([Type.Number(), Type.Null()], {
          description: 'Tokens that one answer gets in a second, from its first on.',
        }),
      },
      { description: 'Null: it has answered nothing since the start.' },
    ),
  );

export const worseSchema = () =>
  nullable(
    Type.Object(
      {
        by: Type.Enum(['calls', 'forms', 'errors'], {
          description:
            '`calls`: answers with a wrong tool call; `forms`: answers in another form; `errors`: failed requests.',
        }),
        since: count('When that was found, in Unix seconds.'),
        failure_share: Type.Number({ description: 'The part that it failed then.' }),
        peers_failure_share: Type.Number({ description: 'The part that its peers fail.' }),
      },
      {
        description: 'It fails more than its peers beyond chance, and is used less until it is better; null otherwise.',
      },
    ),
  );

export function qualityObject(counts: AnswerCounts | undefined) {
  if (counts === undefined) return null;
  const { json, known, fit, formsFit, cached, tokensPerSecond } = answerShares(counts);
  return {
    answered: counts.answered,
    failed: counts.failed,
    tool_calls: counts.calls,
    tool_calls_json: json,
    tool_calls_known: known,
    tool_calls_fit: fit,
    json_answers: counts.forms,
    json_answers_fit: formsFit,
    cached,
    tokens_per_second: tokensPerSecond,
  };
}

export const worseObject = (worse: WorseState | undefined) =>
  worse === undefined
    ? null
    : {
        by: worse.by,
        since: secondsOf(Date.now() - worse.forMs),
        failure_share: worse.share,
        peers_failure_share: worse.peersShare,
      };
