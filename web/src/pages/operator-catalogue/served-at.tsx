import { Badge } from '../../components/badge.tsx';
import type { Got } from '../../api/use-api.ts';
import { useBackendState } from '../../components/backend-state.ts';
import styles from './operator-catalogue.module.css';

type Backend = Got<'/v1/admin/backends'>['data'][number];

/** Names of backends, coloured by how they do. */
export function ServedAt({ backends }: { readonly backends: readonly Backend[] }) {
  const stateOf = useBackendState();
  return (
    <span className={styles['badges']}>
      {backends.map((backend) => {
        const { tone, text } = stateOf(backend);
        return (
          <Badge key={backend.name} tone={tone}>
            {backend.name} · {text}
          </Badge>
        );
      })}
    </span>
  );
}
