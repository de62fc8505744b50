import { AsyncLocalStorage } from 'node:async_hooks';

/** better-auth does not tell its store in which session it works. */
const session = new AsyncLocalStorage<string>();

/** What better-auth changes in `work` happens in this session: it goes on where the person's others end. */
export const inSession = <Answer>(sessionId: string, work: () => Promise<Answer>): Promise<Answer> =>
  session.run(sessionId, work);

export const sessionInWhich = (): string | undefined => session.getStore();
