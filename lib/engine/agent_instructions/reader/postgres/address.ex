defmodule Engine.AgentInstructions.Reader.Postgres.Address do
  @moduledoc """
  Where a database is, and who asks: a connection URL, taken apart.
  """

  alias Engine.AgentInstructions.Reader.Error

  @typedoc "`ssl`: whether the connection is encrypted."
  @type t :: %__MODULE__{
          host: String.t(),
          port: 1..65_535,
          database: String.t(),
          user: String.t(),
          password: String.t(),
          ssl: boolean
        }

  @enforce_keys [:host, :port, :database, :user, :password, :ssl]
  @derive {Inspect, except: [:password]}
  defstruct @enforce_keys

  @doc """
  Takes a URL apart. An error says what is wrong without showing the URL, which holds a password.

      iex> alias Engine.AgentInstructions.Reader.Postgres.Address
      iex> {:ok, address} = Address.parse("postgres://engine:p%40ss@db.internal/app")
      iex> {address.user, address.password, address.host, address.port, address.database}
      {"engine", "p@ss", "db.internal", 5432, "app"}
      iex> {:error, error} = Address.parse("mysql://db.internal/app")
      iex> error.message
      "the database's URL has to begin with postgres:// or postgresql://"
  """
  @spec parse(term) :: {:ok, t} | {:error, Error.t()}
  def parse(url) when is_binary(url) do
    with {:ok, uri} <- uri(url),
         :ok <- scheme(uri),
         {:ok, ssl} <- ssl(uri),
         {:ok, user, password} <- user(uri),
         {:ok, database} <- database(uri),
         {:ok, port} <- port(uri) do
      {:ok,
       %__MODULE__{
         host: uri.host,
         port: port,
         database: database,
         user: user,
         password: password,
         ssl: ssl
       }}
    else
      {:error, message} -> {:error, %Error{reason: :unavailable, message: message}}
    end
  end

  def parse(_other) do
    {:error, %Error{reason: :unavailable, message: "the database's URL is missing"}}
  end

  @doc """
  The address in words, without the password.
  """
  @spec show(t) :: String.t()
  def show(address) do
    "database #{inspect(address.database)} at #{address.host}:#{address.port}"
  end

  defp uri(url) do
    # A percent sign that encodes nothing is an error, or not, by the release of Elixir.
    with false <- url =~ ~r/%(?![0-9a-f]{2})/i,
         {:ok, uri} <- URI.new(url) do
      {:ok, uri}
    else
      _not_encoded_or_no_uri -> {:error, "the database's URL is not a URL"}
    end
  end

  defp scheme(%URI{scheme: scheme}) when scheme in ["postgres", "postgresql"], do: :ok

  defp scheme(_uri),
    do: {:error, "the database's URL has to begin with postgres:// or postgresql://"}

  defp ssl(%URI{query: query}) do
    case URI.decode_query(query || "") do
      none when none == %{} ->
        {:ok, false}

      %{"sslmode" => "disable"} = only when map_size(only) == 1 ->
        {:ok, false}

      %{"sslmode" => "require"} = only when map_size(only) == 1 ->
        {:ok, true}

      _other ->
        {:error,
         "the database's URL may have sslmode=disable or sslmode=require, and no other parameter"}
    end
  end

  defp user(%URI{userinfo: userinfo}) do
    case String.split(userinfo || "", ":", parts: 2) do
      [""] -> {:error, "the database's URL names no user"}
      [user] -> {:ok, URI.decode(user), ""}
      [user, password] -> {:ok, URI.decode(user), URI.decode(password)}
    end
  end

  defp database(%URI{path: "/" <> database, host: host})
       when database != "" and is_binary(host) and host != "" do
    {:ok, URI.decode(database)}
  end

  defp database(%URI{host: host}) when host in [nil, ""] do
    {:error, "the database's URL names no host (Unix sockets are not supported)"}
  end

  defp database(_uri), do: {:error, "the database's URL names no database"}

  defp port(%URI{port: nil}), do: {:ok, 5432}
  defp port(%URI{port: port}) when port in 1..65_535, do: {:ok, port}
  defp port(_uri), do: {:error, "the database's URL has a port that is none"}
end
