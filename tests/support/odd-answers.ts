/** How servers say texts, reasoning and finishes otherwise than OpenAI does: data for whoever plays such a server. */

type Json = Readonly<Record<string, unknown>>;

export interface OddText {
  readonly what: string;
  /** Choices of the chunks, without the index and the finish, which follows. */
  readonly pieces: readonly Json[];
  readonly text: string;
  readonly reasoning?: string;
  /** Think tags may stand in the text. */
  readonly splits?: true;
}

const says = (...deltas: readonly Json[]): readonly Json[] => deltas.map((delta) => ({ delta }));

export const oddTexts: readonly OddText[] = [
  {
    what: 'content as a list of parts, some of them thoughts',
    pieces: says(
      { content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'hm' }] }] },
      { content: [{ type: 'text', text: 'Hel' }] },
      { content: 'lo' },
    ),
    text: 'Hello',
    reasoning: 'hm',
  },
  {
    what: 'a thought as a text, parts without a type, and parts that are no text',
    pieces: says({
      content: [{ type: 'thinking', thinking: 'hm' }, { type: 'image_url', image_url: {} }, { text: 'Hel' }, 'lo'],
    }),
    text: 'Hello',
    reasoning: 'hm',
  },
  {
    what: 'an empty reasoning_content beside reasoning',
    pieces: says({ reasoning_content: '', reasoning: 'hm' }, { content: 'Hello' }),
    text: 'Hello',
    reasoning: 'hm',
  },
  {
    what: 'both names of reasoning with the same text',
    pieces: says({ reasoning_content: 'hm', reasoning: 'hm' }, { content: 'Hello' }),
    text: 'Hello',
    reasoning: 'hm',
  },
  {
    what: 'the halves of a character in two pieces, of text and of reasoning',
    pieces: says(
      { reasoning: 'a\ud83d' },
      { reasoning: '\ude00b' },
      { content: 'c\ud83d' },
      { content: '' },
      { content: '\ude00d' },
    ),
    text: 'c😀d',
    reasoning: 'a😀b',
  },
  {
    what: 'halves that stay alone',
    pieces: says({ reasoning: 'a\ud83d' }, { content: '\ude00b\ud83d' }, { content: 'c\ud83d' }),
    text: '\ufffdb\ufffdc\ufffd',
    reasoning: 'a\ufffd',
  },
  {
    what: 'a message at the end with the whole text',
    pieces: [...says({ content: 'Hel' }, { content: 'lo' }), { message: { role: 'assistant', content: 'Hello' } }],
    text: 'Hello',
  },
  {
    what: 'a message at the end with more than the deltas',
    pieces: [...says({ reasoning: 'hm' }, { content: 'Hel' }), { message: { reasoning: 'hm', content: 'Hello' } }],
    text: 'Hello',
    reasoning: 'hm',
  },
  {
    what: 'a message at the end with another text, as a server has trimmed it',
    pieces: [...says({ content: ' Hello' }), { message: { content: 'Hello' } }],
    text: ' Hello',
  },
  {
    what: 'texts beside an empty place for a delta, half characters among them, and a message at the end',
    pieces: [{ text: 'Hel' }, { text: 'lo\ud83d' }, { text: '\ude00' }, { message: { content: 'Hello😀' } }],
    text: 'Hello😀',
  },
  { what: 'messages alone', pieces: [{ message: { content: 'Hel' } }, { message: { content: 'lo' } }], text: 'Hello' },
  {
    what: 'think tags beside the separated thought, in one delta',
    pieces: says({ content: '<think>hm</think>Hello', reasoning_content: 'hm' }),
    text: 'Hello',
    reasoning: 'hm',
    splits: true,
  },
  {
    what: 'think tags beside the separated thought, in pieces and with other layout',
    pieces: says(
      { reasoning: 'It ' },
      { content: '<think>\nIt is' },
      { reasoning: 'is two.' },
      { content: ' two.\n</think>\n\nTwo' },
    ),
    text: 'Two',
    reasoning: 'It is two.\n',
    splits: true,
  },
  {
    what: 'a second thought in the text behind a separated one',
    pieces: says({ reasoning: 'One.' }, { content: '<think>Two.</think>Hello' }),
    text: 'Hello',
    reasoning: 'One.Two.',
    splits: true,
  },
  {
    what: 'a refusal beside an empty content',
    pieces: says({ content: '', refusal: 'No.' }),
    text: 'No.',
  },
];

/** Values in the middle of an answer that are no finish. */
export const notFinished: readonly unknown[] = [null, '', 'null', 'None', 'NULL', 'FINISH_REASON_UNSPECIFIED'];

/** What the words of servers mean: a reason, or a failure, which costs nothing. */
export const oddFinishes: Readonly<Record<'stop' | 'length' | 'failed', readonly string[]>> = {
  stop: [
    ...['stop', 'STOP', 'end_turn', 'eos_token', 'eos', 'COMPLETE', 'stop_sequence', 'eosFound', 'tool_calls'],
    ...['content_filter', 'sensitive', 'SAFETY', 'refusal', 'a word of tomorrow'],
  ],
  length: [
    ...['length', 'LENGTH', 'max_tokens', 'MAX_TOKENS', 'model_length', 'max_output_tokens', 'max-tokens'],
    ...['model_context_window_exceeded', 'maxPredictedTokensReached', 'ERROR_LIMIT', 'repetition'],
  ],
  failed: [
    ...['error', 'ERROR', 'abort', 'network_error', 'insufficient_system_resource', 'timeout', 'cancelled'],
    ...['canceled', 'USER_CANCEL', 'userStopped', 'MALFORMED_FUNCTION_CALL'],
  ],
};
