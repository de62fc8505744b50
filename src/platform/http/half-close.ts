import type { Socket } from 'node:net';

/**
 * Finds out whether a client that has ended its side of a connection waits for its answer, as RFC 9112 §9.6 lets it, or is gone.
 * To a server both are the same FIN. What tells them apart are bytes: the system of a client that is gone answers them with a
 * reset, which the next write notices (after the FIN nothing is read, so nothing else would). So bytes without meaning are
 * written again and again, with waits that double: a client that left is noticed 60 ms after its FIN, or one round trip later. A
 * short answer is sent before any probe.
 */
export function probe(socket: Socket, write: () => void): () => void {
  const startedMs = performance.now();
  const next = (): NodeJS.Timeout =>
    setTimeout(
      () => {
        if (socket.destroyed) return;
        write();
        timer = next();
      },
      Math.min(probeMsMax, Math.max(probeMs, performance.now() - startedMs)),
    );
  let timer = next();
  return () => clearTimeout(timer);
}

const probeMs = 30;
const probeMsMax = 5000;
