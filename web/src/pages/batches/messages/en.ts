import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  answered: 'Answered',
  batch: 'Batch',
  cancel: 'Cancel',
  cancelAsk: 'Stop this batch?',
  cancelled: 'cancelled',
  cancelling: 'stopping',
  cancelText: 'Requests that run stop and cost nothing. What has ended is charged and delivered.',
  close: 'Close',
  completed: 'completed',
  cost: 'Cost',
  created: 'Created',
  download: 'Download with a key',
  empty: 'No batch yet',
  emptyText:
    'A batch is a list of requests that run while nobody else wants the capacity, for less money. Programs make it:',
  ended: 'Ended',
  endsBy: 'Ends by',
  expired: 'expired',
  failed: 'refused',
  faults: 'What is wrong with its file',
  finalizing: 'writing results',
  for: 'For',
  in_progress: 'running',
  key: 'Key',
  lead: 'Requests that run while nobody else waits: how far they are, what they cost, and how to get their answers.',
  line: 'Line {line}',
  of: '{done} of {total}',
  ofUnanswered: '{done} of {total} · {n} without an answer',
  progress: 'Progress',
  saveAnswers: 'Save answers',
  saveErrors: 'Save lines without an answer',
  state: 'State',
  title: 'Batches',
  validating: 'being checked',
  withoutAnswer: 'Without an answer',
} as const satisfies Catalogue;

export default en;
export type BatchTexts = typeof en;
