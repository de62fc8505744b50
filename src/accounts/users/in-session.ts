import { AsyncLocalStorage } from 'node:async_hooks';

/** better-auth does not tell its store which session it works in. */
const session = new AsyncLocalStorage<string>();

/** Runs `work` in this session, which survives when better-auth's changes end the person's others. */
export const inSession = <Answer>(sessionId: string, work: () => Promise<Answer>): Promise<Answer> =>
  session.run(sessionId, work);

export const sessionInWhich = (): string | undefined => session.getStore();
