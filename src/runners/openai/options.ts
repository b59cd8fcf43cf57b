/** The options of a model behind an OpenAI-compatible API. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, optional } from '../../schema/contract.ts'
import { count, milliseconds } from '../program-options.ts'

const text = (description: string) => Type.String({ minLength: 1, description })

export const OpenAiAgent = Type.Object(
  {
    baseUrl: text('the address before `/chat/completions`, like `https://api.openai.com/v1`'),
    model: text("the model's name"),
    ...optional({
      apiKeyEnv: text(
        'the name of the variable that holds the key; do not put the key itself into a ' +
          'configuration',
      ),
      models: list({
        default: [],
        description: 'further models that the setting `model` of a session or turn may name',
      }),
      system: text('the system message'),
      historyMax: count(
        "how many of the newest messages the server sends; the first is always a user's",
        200,
      ),
      historyCharsMax: count('how many characters of them', 400_000),
      images: Type.Boolean({
        default: true,
        description: 'the model takes images; `false`: turns with images are refused',
      }),
      files: Type.Boolean({
        default: false,
        description: 'the API takes files (`file` parts, like PDF); most do not',
      }),
      parameters: Type.Record(Type.String(), Type.Unknown(), {
        default: {},
        description:
          'more fields of the request, like `temperature`; `null` removes a field that would be ' +
          'sent',
      }),
      startMs: milliseconds('how long the API may take to start its answer', 120_000),
      pauseMs: milliseconds('the maximum time between two parts of it', 120_000),
    }),
  },
  EXACT,
)

export type OpenAiOptions = Readonly<Static<typeof OpenAiAgent>>

export type OpenAiSettings = OpenAiOptions & Required<Omit<OpenAiOptions, 'apiKeyEnv' | 'system'>>
