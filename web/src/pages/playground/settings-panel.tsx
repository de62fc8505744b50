import { useState } from 'react';
import type { ReactNode } from 'react';

import { useGet } from '../../api/use-api.ts';
import { Checkbox, Field, MoreFields, Select, TextArea, controlClass } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { families } from './families/families.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Playground, PlaygroundState } from './playground.ts';
import { familyNames } from './search.ts';
import type { Search } from './search.ts';
import { effortsOf, featuresOf, numberParameters, parametersOf, readFormat, readTools } from './settings.ts';
import type { Feature, Model, NumberParameter } from './settings.ts';
import styles from './playground.module.css';

interface SettingsProps {
  readonly search: Search;
  /** Changes what is in the URL. */
  readonly onChange: (changes: Search) => void;
  readonly models: readonly Model[];
  readonly state: PlaygroundState;
  readonly playground: Playground;
}

/** From this width on the settings stand beside the conversation, and are open. */
const besideFrom = 1080;

export function Settings(props: SettingsProps) {
  const t = useText<PlaygroundTexts>('playground');
  const [isOpen] = useState(() => window.innerWidth >= besideFrom);
  return (
    <details className={styles['settings']} open={isOpen}>
      <summary>{t('settings')}</summary>
      <div className={styles['fields']}>
        <Api {...props} />
        <Texts {...props} />
        <Numbers {...props} />
      </div>
    </details>
  );
}

/** How it is asked, and what form the answer has. */
function Api({ search, onChange, models, state, playground }: SettingsProps) {
  const t = useText<PlaygroundTexts>('playground');
  const family = search.family ?? 'chat';
  const has = useHas(family, models);
  // Then it is so without a header.
  const isZdrRequired = useGet('/v1/account').data?.zdr_required === true;
  const format = readFormat(search.format, state.schema);
  return (
    <>
      <Select
        label={t('api')}
        value={family}
        options={familyNames.map((name) => ({
          value: name,
          text: families[name].title,
          disabled: models.every((model) => featuresOf(name, model) === undefined),
        }))}
        onChange={({ target }) => {
          const chosen = familyNames.find((name) => name === target.value);
          onChange({ family: chosen === 'chat' ? undefined : chosen });
        }}
      />
      <div className={styles['checks']}>
        <Checkbox
          label={t('stream')}
          checked={search.whole !== true && has('streaming')}
          disabled={!has('streaming')}
          onChange={({ target }) => onChange({ whole: target.checked ? undefined : true })}
        />
        {models.some(({ card }) => card.zdr_supported) && (
          <Checkbox
            label={t('zdr')}
            checked={search.zdr === true || isZdrRequired}
            disabled={isZdrRequired}
            onChange={({ target }) => onChange({ zdr: target.checked || undefined })}
          />
        )}
      </div>
      {(has('json_object') || has('json_schema') || search.format !== undefined) && (
        <Select
          label={t('format')}
          value={search.format ?? ''}
          options={[
            { value: '', text: t('formatText') },
            ...(has('json_object') || search.format === 'json_object'
              ? [{ value: 'json_object', text: t('formatJson') }]
              : []),
            ...(has('json_schema') || search.format === 'json_schema'
              ? [{ value: 'json_schema', text: t('formatSchema') }]
              : []),
          ]}
          onChange={({ target: { value } }) =>
            onChange({ format: value === 'json_object' || value === 'json_schema' ? value : undefined })
          }
        />
      )}
      {search.format === 'json_schema' && (
        <CodeArea
          label={t('schema')}
          rows={8}
          value={state.schema}
          onChange={(schema) => playground.set({ schema })}
          {...(!has('json_schema')
            ? { hint: t('notUsed') }
            : 'fault' in format
              ? { error: t('invalidJson', { fault: format.fault }) }
              : {})}
        />
      )}
    </>
  );
}

/** Whether one of the models can do it at all. */
const useHas =
  (family: NonNullable<Search['family']>, models: readonly Model[]) =>
  (feature: Feature): boolean =>
    models.some((model) => featuresOf(family, model)?.includes(feature) === true);

/** What goes with every request beside the conversation. */
function Texts({ search, onChange, models, state, playground }: SettingsProps) {
  const t = useText<PlaygroundTexts>('playground');
  const family = search.family ?? 'chat';
  const has = useHas(family, models);
  const tools = readTools(state.tools);
  const isSet = !('fault' in tools) && tools.value.length > 0;
  if (family === 'completions') return null;
  return (
    <>
      <TextArea
        label={t('system')}
        required={false}
        rows={3}
        value={state.system}
        placeholder={String((models[0]?.card.service.defaults as { system?: string } | undefined)?.system ?? '')}
        onChange={({ target }) => playground.setSystem(target.value, state.isSystemKept)}
      />
      <Checkbox
        label={t('keepSystem')}
        checked={state.isSystemKept}
        onChange={({ target }) => playground.setSystem(state.system, target.checked)}
      />
      {(has('tools') || state.tools !== '') && (
        <CodeArea
          label={t('offered')}
          rows={isSet ? 8 : 2}
          value={state.tools}
          hint={has('tools') ? t('toolsHint') : t('notUsed')}
          onChange={(written) => playground.set({ tools: written })}
          {...('fault' in tools ? { error: t('invalidJson', { fault: tools.fault }) } : {})}
        />
      )}
      {isSet && has('tools') && (
        <Select
          label={t('toolChoice')}
          value={search.tool_choice ?? ''}
          options={[
            { value: '', text: t('auto') },
            { value: 'required', text: t('required') },
            { value: 'none', text: t('none') },
          ]}
          onChange={({ target: { value } }) =>
            onChange({ tool_choice: value === 'required' || value === 'none' ? value : undefined })
          }
        />
      )}
    </>
  );
}

interface CodeAreaProps {
  readonly label: string;
  readonly rows: number;
  readonly value: string;
  readonly hint?: ReactNode;
  readonly error?: string;
  readonly onChange: (value: string) => void;
}

function CodeArea({ onChange, ...others }: CodeAreaProps) {
  return (
    <div className={styles['codeArea']}>
      <TextArea {...others} required={false} spellCheck={false} onChange={({ target }) => onChange(target.value)} />
    </div>
  );
}

/** Parameters by the names that they have in a request, the same in every language. */
function Numbers({ search, onChange, models }: SettingsProps) {
  const t = useText<PlaygroundTexts>('playground');
  const family = search.family ?? 'chat';
  const able = numberParameters.filter((parameter) =>
    models.some((model) => parametersOf(family, model).includes(parameter)),
  );
  const first = able.slice(0, 4);
  const efforts = [...new Set(models.flatMap((model) => effortsOf(family, model)))];
  const defaults = (models[0]?.card.service.defaults ?? {}) as Readonly<Record<string, string | number>>;
  const fieldOf = (parameter: NumberParameter): ReactNode => (
    <NumberField
      key={parameter.name}
      of={parameter}
      value={search[parameter.name]}
      placeholder={String(defaults[parameter.name] ?? '')}
      onChange={(value) => onChange({ [parameter.name]: value })}
    />
  );
  return (
    <>
      {efforts.length > 0 && (
        <Select
          label={t('effort')}
          value={search.effort ?? ''}
          options={[
            { value: '', text: t('defaultValue') },
            ...efforts.map((effort) => ({ value: effort, text: effort })),
          ]}
          onChange={({ target }) => onChange({ effort: target.value || undefined })}
        />
      )}
      <div className={styles['numbers']}>{first.map(fieldOf)}</div>
      <MoreFields
        summary={t('moreParameters')}
        open={search.stop !== undefined || able.slice(4).some(({ name }) => search[name] !== undefined)}
      >
        <div className={styles['numbers']}>{able.slice(4).map(fieldOf)}</div>
        <TextArea
          label={t('stopSequences')}
          hint={t('oneALine')}
          required={false}
          rows={2}
          maxLength={200}
          value={search.stop ?? ''}
          onChange={({ target }) => onChange({ stop: target.value || undefined })}
        />
      </MoreFields>
    </>
  );
}

interface NumberFieldProps {
  readonly of: NumberParameter;
  readonly value: number | undefined;
  readonly placeholder: string;
  readonly onChange: (value: number | undefined) => void;
}

function NumberField({ of: { name, min, max, step }, value, placeholder, onChange }: NumberFieldProps) {
  return (
    <Field label={<code>{name}</code>}>
      {(control) => (
        <input
          className={controlClass}
          type="number"
          {...control}
          min={min}
          max={max}
          step={step}
          placeholder={placeholder}
          value={value ?? ''}
          onChange={({ target }) => onChange(target.value === '' ? undefined : Number(target.value))}
        />
      )}
    </Field>
  );
}
