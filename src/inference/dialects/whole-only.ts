import type { Generation } from '../../generation/fold.ts';
import type { AnswerFormat, ResponseHead } from './dialect.ts';

/** The format of a family without streams: its requests have `stream: false`, whatever their body says. */
export const wholeOnly = (encodeResponse: (generation: Generation, head: ResponseHead) => string): AnswerFormat => ({
  encodeResponse,
  openStream: () => {
    throw new Error('a stream of a family that has none');
  },
});
