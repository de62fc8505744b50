import { ApiError } from '../errors.ts';
import type { AccountRoute } from './route.ts';

export interface Match {
  readonly route: AccountRoute;
  /** By the names in the route's path, decoded and not checked. */
  readonly params: Readonly<Record<string, string>>;
}

interface Node {
  readonly fixed: Map<string, Node>;
  /** Of segments that are a parameter. */
  any: Node | undefined;
  readonly routes: Map<string, { readonly route: AccountRoute; readonly names: readonly string[] }>;
}

const newNode = (): Node => ({ fixed: new Map(), any: undefined, routes: new Map() });

/** Finds routes by method and path. A fixed segment goes before a parameter. */
export class Router {
  readonly #root = newNode();

  constructor(routes: readonly AccountRoute[]) {
    for (const route of routes) {
      let node = this.#root;
      const names: string[] = [];
      for (const segment of segmentsOf(route.path)) {
        const name = /^\{(\w+)\}$/.exec(segment)?.[1];
        if (name !== undefined) {
          names.push(name);
          node = node.any ??= newNode();
        } else {
          let next = node.fixed.get(segment);
          if (next === undefined) node.fixed.set(segment, (next = newNode()));
          node = next;
        }
      }
      const method = route.method.toUpperCase();
      if (node.routes.has(method)) throw new Error(`two routes are ${method} ${route.path}`);
      node.routes.set(method, { route, names });
    }
  }

  /** Throws `http_404`, or `http_405` with the methods that there are. HEAD is answered as GET is. */
  find(method: string, path: string): Match {
    const values: string[] = [];
    let node = this.#root;
    for (const segment of segmentsOf(path)) {
      const fixed: Node | undefined = node.fixed.get(segment);
      // Nothing is the id of nothing.
      const next: Node | undefined = fixed ?? (segment === '' ? undefined : node.any);
      if (next === undefined) throw noRoute();
      if (fixed === undefined) values.push(decoded(segment));
      node = next;
    }
    if (node.routes.size === 0) throw noRoute();
    const found = node.routes.get(method === 'HEAD' ? 'GET' : method);
    if (found === undefined) {
      const allow = [...node.routes.keys()].flatMap((known) => (known === 'GET' ? ['GET', 'HEAD'] : [known]));
      throw new ApiError('http_405', `Use ${allow.join(', ')} here.`, { headers: { allow: allow.join(', ') } });
    }
    return {
      route: found.route,
      params: Object.fromEntries(found.names.map((name, index) => [name, values[index] ?? ''])),
    };
  }
}

const noRoute = (): ApiError => new ApiError('http_404', 'There is no such route.');
const segmentsOf = (path: string): readonly string[] => path.split('/').slice(1);

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw noRoute();
  }
}
