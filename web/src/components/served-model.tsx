import type { AppTexts } from '../app/messages/en.ts';
import type { Row } from '../api/use-api.ts';
import { Badge } from './badge.tsx';
import { useText } from '../i18n/text.ts';

interface Props {
  readonly of: Pick<Row<'/v1/generations'>, 'model' | 'fallback_from'>;
}

/** In a list: the model that served a request and is charged, and the one that was asked for where that is another. */
export function ServedModel({ of: { model, fallback_from: asked } }: Props) {
  const t = useText<AppTexts>('app');
  return (
    <>
      {model}
      {asked !== null && (
        <>
          {' '}
          <Badge tone="accent">{t('insteadOf', { model: asked })}</Badge>
        </>
      )}
    </>
  );
}
