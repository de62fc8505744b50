/** How a request may have ended (docs/money.md): the text for it, and how good or bad that is. */
export const endings = {
  finished: { text: 'endFinished', tone: 'good' },
  credit: { text: 'endCredit', tone: 'warn' },
  client_left: { text: 'endClientLeft', tone: 'plain' },
  reader_stalled: { text: 'endReaderStalled', tone: 'plain' },
  revoked: { text: 'endRevoked', tone: 'warn' },
  failed: { text: 'endFailed', tone: 'bad' },
  deadline: { text: 'endDeadline', tone: 'bad' },
  drained: { text: 'endDrained', tone: 'bad' },
  cancelled: { text: 'endCancelled', tone: 'plain' },
  lost: { text: 'endLost', tone: 'bad' },
  crashed: { text: 'endCrashed', tone: 'bad' },
} as const satisfies Readonly<Record<string, { readonly text: string; readonly tone: string }>>;

export type EndingName = keyof typeof endings;
export const endingNames = Object.keys(endings) as readonly EndingName[];
