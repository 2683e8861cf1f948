// A choice between a few values, as buttons in a row.

interface Properties {
  label: string;
  values: [value: string, name: string, title?: string][];
  chosen: string;
  choose: (value: string) => void;
}

/** The buttons. */
export function Switch({ label, values, chosen, choose }: Properties) {
  return (
    <span class="switch" role="group" aria-label={label}>
      {values.map(([value, name, title]) => (
        <button
          type="button"
          key={value}
          data-value={value}
          aria-pressed={value === chosen}
          title={title}
          onClick={() => choose(value)}
        >
          {name}
        </button>
      ))}
    </span>
  );
}
