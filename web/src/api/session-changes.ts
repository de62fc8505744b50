/** How long a request waits for a change of the session before it says what it was answered. */
const changeMaxMs = 10_000;

const isRead = ({ method }: Request): boolean => method === 'GET' || method === 'HEAD';

/** Signing in and out, codes, a new password: the server may end the session that the request came with and start another. */
const changesSession = (request: Request): boolean =>
  !isRead(request) && new URL(request.url).pathname.startsWith('/v1/auth/');

/**
 * Sends requests, and asks once more when a read was refused with 401 while a change of the session was under way: it may
 * have carried the cookie of the session before, which says nothing about the one that is there now.
 */
export function acrossSessionChanges(send: (request: Request) => Promise<Response>) {
  const underWay = new Set<Promise<Response>>();
  let begun = 0;

  async function change(request: Request): Promise<Response> {
    begun++;
    const answer = send(request);
    underWay.add(answer);
    try {
      return await answer;
    } finally {
      underWay.delete(answer);
    }
  }

  return async (request: Request): Promise<Response> => {
    if (changesSession(request)) return await change(request);
    if (!isRead(request)) return await send(request);
    const [begunBefore, wereUnderWay] = [begun, underWay.size > 0];
    const answer = await send(request);
    if (answer.status !== 401 || (begun === begunBefore && !wereUnderWay)) return answer;
    await settled(underWay, request.signal);
    return await send(request);
  };
}

/** When the changes have been answered, the one who asks has left, or the time is up. */
async function settled(changes: Iterable<Promise<unknown>>, signal: AbortSignal): Promise<void> {
  let stop = (): void => undefined;
  const stopped = new Promise<void>((resolve) => (stop = resolve));
  const timer = setTimeout(stop, changeMaxMs);
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  await Promise.race([Promise.allSettled(changes), stopped]);
  clearTimeout(timer);
  signal.removeEventListener('abort', stop);
}
