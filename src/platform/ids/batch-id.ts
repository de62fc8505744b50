/** The ids of batches as their clients know them, by the interface. */
const prefixes = { openai: 'batch_', anthropic: 'msgbatch_' } as const;

export const batchIdOf = ({ wire, id }: { readonly wire: keyof typeof prefixes; readonly id: string }): string =>
  `${prefixes[wire]}${id}`;

/** The id in the database; undefined if the text has another form. */
export const readBatchId = (text: string, wire: keyof typeof prefixes): string | undefined =>
  text.startsWith(prefixes[wire]) ? /^[0-9a-f]{32}$/.exec(text.slice(prefixes[wire].length))?.[0] : undefined;
