import type { Socket } from 'node:net';

/**
 * Finds out whether a client that has half-closed its connection is waiting for its answer, as RFC 9112 §9.6 permits, or is gone. A
 * server sees the same FIN in both cases. Sending bytes distinguishes them: the system of a client that is gone answers with a
 * reset, which the next write notices (nothing is read after the FIN, so nothing else would). So meaningless bytes are written
 * repeatedly, with waits that double: a client that left is noticed 60 ms after its FIN, or one round trip later. A short answer is
 * sent before any probe.
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
