import type { Repositories, RepositoryOperation } from './repositories.ts';

/** Repositories whose operations are carried out elsewhere: in a thread, by another process, or with something besides. */
export function forwardedRepositories(
  carryOut: (name: RepositoryOperation, request: unknown) => Promise<unknown>,
): Repositories {
  return new Proxy({} as Repositories, {
    // `then` would make it look like a promise to `await`.
    get: (_target, name) =>
      name === 'then' ? undefined : (request: unknown) => carryOut(name as RepositoryOperation, request),
  });
}

/** Carries out an operation by its name. */
export function carryOut(repositories: Repositories, name: RepositoryOperation, request: unknown): Promise<unknown> {
  return (repositories[name] as (request: unknown) => Promise<unknown>)(request);
}
